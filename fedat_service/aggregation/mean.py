"""Within a tier: the weighted mean of a round, as a running sum."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.chunks import chunks
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model

Weighting = Literal["samples", "uniform"]


def update_weight(num_examples: int, weighting: Weighting) -> int:
    """How much one update counts in its round: `n_k` (FedAvg, FedProx, FedAT) or 1 (FedLAMA, Fed-LAMB)."""
    return num_examples if weighting == "samples" else 1


def add_values(values: NDArray[np.float32 | np.int32], weight: float, total: NDArray[np.float64]) -> None:
    """Add ``weight * value`` to every element of `total`, in parts that stay in the cache."""
    for part in chunks(total.size):
        total[part] += np.multiply(values[part], weight, dtype=np.float64)


class RunningMean:
    """Weighted mean of a round's updates in the memory of one model, however many clients report.

    McMahan et al. (AISTATS 2017), Algorithm 1; FedAT (SC '21), Algorithm 1: ``w = sum_k n_k w_k / N`` with
    ``N = sum_k n_k``. Integer buffers take the largest value reported.

    The sum is kept on the codec's grid: `total` holds ``sum_k n_k * scale * w_k``. A codec whose payload
    is integers ``q = scale * w`` adds ``n_k * q`` straight into it; that is exact while the sum is below
    2**53, so the mean of such a round is the same bits for every order of arrival.

    A sync of some layers only is a mean over a manifest of these layers.

    Args:
        manifest: What the updates are made of.
        scale: Grid steps per unit of value: `10**p` for polyline, 1 for codecs without a grid.

    Attributes:
        total: Shape `(num_floats,)`, the sum in grid units times weight.
        weight_sum: Weight of the admitted updates.
        num_updates: Number of admitted updates.
        integers: Shape `(num_integers,)`, the largest values so far.

    Raises:
        RuleError: If `scale` is not at least 1.
    """

    def __init__(self, manifest: Manifest, scale: float = 1.0) -> None:
        if scale < 1:
            raise RuleError(f"the scale of a grid must be at least 1, got {scale!r}")
        self.scale = scale
        self.total = np.zeros(manifest.num_floats, np.float64)
        self.weight_sum = 0.0
        self.num_updates = 0
        self.integers = np.full(manifest.num_integers, np.iinfo(np.int64).min, np.int64)

    def admit(self, integers: NDArray[np.int64], weight: float) -> None:
        """Count one update whose floats the caller adds into `total`, times `weight`.

        Args:
            integers: Shape `(num_integers,)`, the update's integer buffers.
            weight: Its weight.

        Raises:
            RuleError: If the weight is not positive and finite; nothing is counted then.
            ManifestError: If the integers are not as many as the manifest says.
        """
        if not (math.isfinite(weight) and weight > 0):
            raise RuleError(f"the weight of an update must be positive and finite, got {weight!r}")
        if integers.shape != self.integers.shape:
            raise ManifestError(f"an update has {self.integers.size} integers, got {list(integers.shape)}")
        np.maximum(self.integers, integers, out=self.integers)
        self.weight_sum += weight
        self.num_updates += 1

    def add(self, model: Model, weight: float) -> None:
        """Take one decoded update in.

        Raises:
            RuleError: If the weight is not positive and finite; the sum is untouched then.
            ManifestError: If the model has not the manifest's sizes.
        """
        if model.floats.shape != self.total.shape:
            raise ManifestError(f"an update has {self.total.size} floats, got {list(model.floats.shape)}")
        self.admit(model.integers, weight)
        add_values(model.floats, weight * self.scale, self.total)

    def mean(self) -> Model:
        """The mean so far: one float64 division per element, rounded once to float32.

        Raises:
            RuleError: If no update was admitted.
        """
        if self.num_updates == 0:
            raise RuleError("a round without updates has no mean")
        floats = np.empty(self.total.shape, np.float32)
        np.divide(self.total, self.weight_sum * self.scale, out=floats)
        return Model(floats, self.integers.copy())
