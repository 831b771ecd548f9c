"""What a model is made of: a manifest of named tensors, and a model as two flat vectors."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import ManifestError

Params = Mapping[str, NDArray[Any]]
"""A `state_dict` as NumPy arrays, in manifest order."""

Dtype = Literal["float32", "int64"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_MAX_DIMS = 8
_MAX_TENSORS = 100_000
_MAX_ELEMENTS = 1 << 34


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model, of `size` elements; `layer` is the unit that a schedule sends or keeps.

    Raises:
        ManifestError: If the name, the shape or the dtype cannot be carried.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    layer: str
    trainable: bool = True
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for label, value in (("tensor", self.name), ("layer", self.layer)):
            if not _NAME.fullmatch(value):
                raise ManifestError(
                    f"{label} name {value!r} is not of letters, digits, '_', '-', '.' (1..128)"
                )
        if self.dtype not in ("float32", "int64"):
            raise ManifestError(f"tensor {self.name!r}: dtype must be float32 or int64, got {self.dtype!r}")
        if len(self.shape) > _MAX_DIMS or any(n < 0 for n in self.shape):
            raise ManifestError(f"tensor {self.name!r}: shape {self.shape!r} must be up to 8 sizes >= 0")
        if self.trainable and self.dtype != "float32":
            raise ManifestError(f"tensor {self.name!r}: an integer tensor cannot be trainable")
        object.__setattr__(self, "size", math.prod(self.shape))


@dataclass(frozen=True)
class Manifest:
    """The tensors of a model in `state_dict` order, grouped into layers.

    Float tensors lie one after the other in one float32 vector, integer tensors in one int64 vector, so
    that a whole model is averaged, mixed and compared in one pass.

    Raises:
        ManifestError: If there is no tensor, a name stands twice, a layer's tensors are not neighbours,
            or the model is too large to be carried.
    """

    tensors: tuple[TensorSpec, ...]
    layers: tuple[str, ...] = field(init=False)
    num_floats: int = field(init=False)
    num_integers: int = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.tensors) <= _MAX_TENSORS:
            raise ManifestError(f"a manifest holds 1..{_MAX_TENSORS} tensors, got {len(self.tensors)}")
        names = [t.name for t in self.tensors]
        if len(set(names)) != len(names):
            raise ManifestError(f"tensor {_first_repeat(names)!r} stands twice in the manifest")
        starts = [
            t.layer for i, t in enumerate(self.tensors) if i == 0 or self.tensors[i - 1].layer != t.layer
        ]
        if len(set(starts)) != len(starts):
            raise ManifestError(f"the tensors of layer {_first_repeat(starts)!r} must be neighbours")
        object.__setattr__(self, "layers", tuple(starts))
        object.__setattr__(self, "num_floats", sum(t.size for t in self.tensors if t.dtype == "float32"))
        object.__setattr__(self, "num_integers", sum(t.size for t in self.tensors if t.dtype == "int64"))
        if self.num_floats + self.num_integers > _MAX_ELEMENTS:
            raise ManifestError(f"the model has {self.num_floats + self.num_integers} elements, over 2**34")

    @cached_property
    def spans(self) -> Mapping[str, slice]:
        """Where each tensor lies in the vector of its dtype."""
        ends = {"float32": 0, "int64": 0}
        spans = {}
        for tensor in self.tensors:
            start = ends[tensor.dtype]
            ends[tensor.dtype] = start + tensor.size
            spans[tensor.name] = slice(start, start + tensor.size)
        return spans

    @cached_property
    def digest(self) -> str:
        """Hex digest of names, shapes, dtypes and layers: equal on two sides that hold one kind of model."""
        text = repr([(t.name, t.shape, t.dtype, t.layer, t.trainable) for t in self.tensors])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def select(self, layers: Iterable[str]) -> tuple[TensorSpec, ...]:
        """Return the tensors of `layers`, in manifest order.

        Raises:
            ManifestError: If a layer is not in the manifest.
        """
        return self._those("layer", layers, self.layers)

    def named(self, names: Iterable[str]) -> tuple[TensorSpec, ...]:
        """Return the tensors of some names, in manifest order.

        Raises:
            ManifestError: If a name is not in the manifest.
        """
        return self._those("name", names, self.spans)

    def _those(
        self, attribute: Literal["layer", "name"], asked: Iterable[str], known: Iterable[str]
    ) -> tuple[TensorSpec, ...]:
        wanted = set(asked)
        if unknown := wanted.difference(known):
            raise ManifestError(f"unknown {attribute} {min(unknown)!r}; the model has {', '.join(known)}")
        return tuple(t for t in self.tensors if getattr(t, attribute) in wanted)

    @staticmethod
    def of(params: Params, trainable: Iterable[str] | None = None) -> "Manifest":
        """Describe a `state_dict`; a layer is everything before a tensor name's last dot.

        Args:
            params: float32 or int64 arrays in `state_dict` order.
            trainable: Names of the trainable tensors; every float tensor if None.

        Raises:
            ManifestError: If an array is of another dtype.
        """
        chosen = None if trainable is None else set(trainable)
        tensors = []
        for name, array in params.items():
            if array.dtype not in (np.dtype(np.float32), np.dtype(np.int64)):
                raise ManifestError(f"tensor {name!r}: dtype must be float32 or int64, got {array.dtype}")
            dtype: Dtype = "float32" if array.dtype == np.float32 else "int64"
            learns = dtype == "float32" and (chosen is None or name in chosen)
            tensors.append(
                TensorSpec(name, tuple(array.shape), dtype, name.rpartition(".")[0] or name, learns)
            )
        return Manifest(tuple(tensors))


@dataclass(frozen=True, slots=True)
class Model:
    """Values for a manifest: `floats` of shape `(num_floats,)`, `integers` of shape `(num_integers,)`.

    The vectors are never written to after the model is made.
    """

    floats: NDArray[np.float32]
    integers: NDArray[np.int64]

    def digest(self) -> str:
        """Hex digest of all values, bit for bit."""
        state = hashlib.blake2b(digest_size=16)
        state.update(np.ascontiguousarray(self.floats).data)
        state.update(np.ascontiguousarray(self.integers).data)
        return state.hexdigest()


def require_whole(params: Params, manifest: Manifest) -> None:
    """Hold a `state_dict` against a manifest.

    Raises:
        ManifestError: If a tensor is missing, not in the manifest, or of another shape or dtype.
    """
    if extra := set(params).difference(t.name for t in manifest.tensors):
        raise ManifestError(f"tensor {min(extra)!r} is not in the manifest")
    for tensor in manifest.tensors:
        array = params.get(tensor.name)
        if array is None:
            raise ManifestError(f"tensor {tensor.name!r} is missing")
        if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
            raise ManifestError(
                f"tensor {tensor.name!r} must be {tensor.dtype}{list(tensor.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )


def to_model(params: Params, manifest: Manifest) -> Model:
    """Lay a whole `state_dict` out as a model.

    Raises:
        ManifestError: As `require_whole`.
    """
    require_whole(params, manifest)
    model = Model(np.empty(manifest.num_floats, np.float32), np.empty(manifest.num_integers, np.int64))
    for tensor in manifest.tensors:
        target = model.floats if tensor.dtype == "float32" else model.integers
        target[manifest.spans[tensor.name]] = params[tensor.name].reshape(-1)
    return model


def to_params(model: Model, manifest: Manifest) -> dict[str, NDArray[Any]]:
    """Views of a model's tensors by name, shaped as the manifest says."""
    vectors: dict[str, NDArray[Any]] = {"float32": model.floats, "int64": model.integers}
    return {t.name: vectors[t.dtype][manifest.spans[t.name]].reshape(t.shape) for t in manifest.tensors}


def initial_model(manifest: Manifest, seed: int) -> Model:
    """Glorot-uniform weights, zero biases, unit scales and variances (the papers' initialisation).

    Glorot & Bengio (AISTATS 2010): ``U(-a, a)`` with ``a = sqrt(6 / (fan_in + fan_out))``; a convolution's
    fans count its receptive field. One-dimensional ``*.weight`` (a normalisation's scale) and
    ``*.running_var`` start at one.
    """
    rng = np.random.default_rng(seed)
    model = Model(np.zeros(manifest.num_floats, np.float32), np.zeros(manifest.num_integers, np.int64))
    for tensor in manifest.tensors:
        if tensor.dtype != "float32":
            continue
        span = manifest.spans[tensor.name]
        if len(tensor.shape) >= 2:
            field_size = math.prod(tensor.shape[2:])
            fans = (tensor.shape[0] + tensor.shape[1]) * field_size
            limit = math.sqrt(6 / fans) if fans else 0.0
            model.floats[span] = rng.uniform(-limit, limit, tensor.size)
        elif tensor.name.endswith((".weight", "running_var")):
            model.floats[span] = 1.0
    return model


def _first_repeat(names: list[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)
