"""Causal language models: the Llama architecture at the size of SmolLM2-135M, and a small one."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it


@dataclass(frozen=True, slots=True)
class LanguageShape:
    """Sizes of a language model; the defaults are SmolLM2-135M's (Ben Allal et al., arXiv:2502.02737).

    Args:
        width: Features of a token.
        depth: Number of blocks.
        heads: Query heads of an attention; divides `width`.
        key_heads: Key and value heads, each shared by ``heads / key_heads`` query heads.
        hidden: Features inside a feed-forward layer.
        rotary_base: The slowest rotation turns once in about ``2 * pi * rotary_base`` tokens.
    """

    width: int = 576
    depth: int = 30
    heads: int = 9
    key_heads: int = 3
    hidden: int = 1536
    rotary_base: float = 100_000.0


class Attention(nn.Module):
    """Causal attention with grouped queries (Ainslie et al., EMNLP 2023) and rotated positions."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self._size = shape.width // shape.heads
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.key_heads * self._size, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.key_heads * self._size, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Map ``(B, T, width)`` to the same shape; `angles` are of shape ``(T, size of a head / 2)``."""
        q, k, v = (
            projection(x).unflatten(2, (-1, self._size)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(
            rotate(q, angles), rotate(k, angles), v, is_causal=True, enable_gqa=True
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, arXiv:2002.05202): ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, T, width)`` to the same shape."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Attention, then the feed-forward layer, each on normalised inputs and added to them."""

    def __init__(self, shape: LanguageShape) -> None:
        super().__init__()
        self.input_layernorm = _norm(shape.width)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = _norm(shape.width)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Map ``(B, T, width)`` to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), angles)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class CausalLanguageModel(nn.Module):
    """Predicts the token that follows a sequence; the output layer is the transposed embedding.

    134,515,008 parameters with SmolLM2's 49,152 tokens. Tensors are named as `transformers` names them
    inside ``LlamaForCausalLM.model``, so that released weights load by name.
    """

    def __init__(self, num_tokens: int, shape: LanguageShape = LanguageShape()) -> None:
        super().__init__()
        self._shape = shape
        self.embed_tokens = nn.Embedding(num_tokens, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.depth))
        self.norm = _norm(shape.width)

    def features(self, tokens: Tensor) -> Tensor:
        """Map int64 tokens ``(B, T)`` to ``(B, T, width)``: what is known at a position of its next token."""
        x: Tensor = self.embed_tokens(tokens)
        size = self._shape.width // self._shape.heads
        angles = rotation_angles(tokens.shape[1], size, self._shape.rotary_base).to(x.device)
        for layer in self.layers:
            x = layer(x, angles)
        out: Tensor = self.norm(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Map token numbers of any dtype, ``(B, ...)``, to scores of the next token, ``(B, num_tokens)``."""
        last = self.features(x.flatten(1).long())[:, -1]
        return F.linear(last, self.embed_tokens.weight)


def smollm2(input_shape: tuple[int, int, int], num_classes: int) -> CausalLanguageModel:
    """Build SmolLM2-135M with `num_classes` tokens; an image is a sequence of tokens, of any length.

    A `Dataset` of text has a ``max_value`` of 1, so that its inputs are the token numbers themselves.
    """
    del input_shape  # nothing in the network depends on the length
    return CausalLanguageModel(num_classes)


def small_llama(input_shape: tuple[int, int, int], num_classes: int) -> CausalLanguageModel:
    """Build a model of 6 blocks of 64 features, for `num_classes` tokens: 267,072 parameters for 128.

    As in `smollm2` the inputs are token numbers, a text of any length.
    """
    del input_shape  # nothing in the network depends on the length
    return CausalLanguageModel(
        num_classes, LanguageShape(width=64, depth=6, heads=4, key_heads=2, hidden=160, rotary_base=10_000.0)
    )


def rotation_angles(length: int, size: int, base: float) -> Tensor:
    """Angles of positions ``0..length - 1``: ``m * base ** (-2 i / size)``, of shape ``(length, size / 2)``.

    Su et al. (arXiv:2104.09864), eq. 15.
    """
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    return torch.outer(torch.arange(length, dtype=torch.float32), frequencies)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turn the pairs ``(x[i], x[i + size / 2])`` of ``(..., T, size)`` by `angles` ``(T, size / 2)``.

    So products of queries and keys depend on the distance of their positions only.
    """
    left, right = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def _norm(width: int) -> nn.RMSNorm:
    return nn.RMSNorm(width, eps=1e-5)
