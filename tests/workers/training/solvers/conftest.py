"""Models so small that a paper's rule can be followed by hand, trained by the real trainer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from workers.training.torch_trainer import TorchTrainer


class Part(nn.Module):
    """One layer: a vector."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, dtype=torch.float64))


class Vector(nn.Module):
    """A vector theta in layers; its inputs are ``(a, b)``, shape ``(n, 2, d)``."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Part(size) for size in sizes)

    @property
    def theta(self) -> Tensor:
        return torch.cat([part.weight for part in self.parts])


class Quadratic(Vector):
    """Loss ``a/2 (theta - b)^2``, so the gradient ``a (theta - b)``."""

    def forward(self, x: Tensor) -> Tensor:
        return (x[:, 0] * (self.theta - x[:, 1]) ** 2 / 2).sum(1)


class Linear(Vector):
    """Loss ``a theta``, so the gradient ``a`` wherever it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0] @ self.theta


def _trainer(model: Vector, rows: Any) -> TorchTrainer:
    """Batches of one row each, in the order given."""
    batches = [(torch.tensor(np.array([row], np.float64)), torch.zeros(1)) for row in rows]
    return TorchTrainer(model, batches, [], loss_fn=lambda losses, _: losses.mean())


@pytest.fixture
def quadratic() -> Callable[..., TorchTrainer]:
    """`quadratic(a, b)` trains a client with gradient ``a (theta - b)``; `sizes` are those of its layers."""

    def build(a, b, sizes=(2,)):
        return _trainer(Quadratic(sizes), [[a, b]])

    return build


@pytest.fixture
def linear() -> Callable[..., TorchTrainer]:
    """`linear(gradients)` trains a client that sees these gradients, one a step."""

    def build(gradients, sizes=(2, 1)):
        return _trainer(Linear(sizes), [[g, g] for g in gradients])

    return build


@pytest.fixture
def split() -> Callable[..., dict[str, np.ndarray]]:
    """`split(theta, sizes)` is a vector as the tensors of a `Vector`."""

    def by_name(theta, sizes):
        parts = np.split(np.array(theta, np.float64), np.cumsum(sizes)[:-1])
        return {f"parts.{i}.weight": part for i, part in enumerate(parts)}

    return by_name


@pytest.fixture
def join() -> Callable[..., np.ndarray]:
    """`join(params)` is the vector again."""
    return lambda params: np.concatenate(list(params.values()))
