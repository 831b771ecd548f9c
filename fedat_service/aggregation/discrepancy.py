"""How far the uploads of a sync lie apart, tensor by tensor."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.chunks import chunks
from fedat_service.aggregation.mean import RunningMean
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest

_NOISE = 1e-12
"""Share of the squares that float64 can lose in a sum over a tensor."""


class Drift:
    """Sums of squared drifts from the values that all clients started from, one float64 a tensor.

    The discrepancy needs the mean, which is known only when every upload has gone by. No upload is kept:
    with ``b`` the common start, ``mean ||x_i - u||^2 = mean ||x_i - b||^2 - ||u - b||^2``. Taking the drift
    from b rather than the values themselves, the two terms are of the order of their difference, and
    float64 loses next to nothing.

    Args:
        manifest: The tensors of the sync.
        base: Shape `(num_floats,)`, their values at their last sync.

    Raises:
        ManifestError: If the base has not the manifest's size.
    """

    def __init__(self, manifest: Manifest, base: NDArray[np.float32]) -> None:
        if base.shape != (manifest.num_floats,):
            raise ManifestError(f"the base has {manifest.num_floats} floats, got {list(base.shape)}")
        self._manifest = manifest
        self._base = base
        self._squares = {tensor.name: 0.0 for tensor in manifest.tensors if tensor.trainable}

    def add(self, tensor: str, values: NDArray[np.floating[Any]], weight: float) -> None:
        """Take one upload of a tensor in; one that does not learn has no discrepancy.

        Args:
            tensor: Its name.
            values: Its values, flat.
            weight: What the update counts in the mean.

        Raises:
            ManifestError: If the sync has no such tensor, or it is of another size.
            RuleError: If the weight is not positive and finite.
        """
        span = self._manifest.spans.get(tensor)
        if span is None or values.shape != (span.stop - span.start,):
            raise ManifestError(f"tensor {tensor!r} with {list(values.shape)} values is not of this sync")
        if not (math.isfinite(weight) and weight > 0):
            raise RuleError(f"the weight of an update must be positive and finite, got {weight!r}")
        if tensor in self._squares:
            self._squares[tensor] += weight * _squared_distance(values, self._base[span])

    def discrepancies(self, mean: RunningMean, tau: Mapping[str, int]) -> dict[str, float]:
        """The unit discrepancy of each trainable tensor: ``d_l = mean_i ||u - x_i||^2 / (tau_l dim_l)``.

        Lee et al., FedLAMA (AAAI '23), eq. 2, where every client weighs the same; with weights the mean is
        the weighted one.

        Args:
            mean: The running mean of the same updates, over the same manifest.
            tau: Local steps since each tensor's last sync. A common factor changes no decision, so base
                intervals do as well.

        Raises:
            RuleError: If no update was admitted, or a tau is below 1.
            ManifestError: If the mean is of another size.
        """
        if mean.total.shape != self._base.shape:
            raise ManifestError(f"the mean has {mean.total.size} floats, the base {self._base.size}")
        if mean.num_updates == 0:
            raise RuleError("a sync without updates has no discrepancy")
        d = {}
        for tensor in self._manifest.tensors:
            if not tensor.trainable:
                continue
            if tau[tensor.name] < 1:
                raise RuleError(f"tensor {tensor.name!r}: tau must be at least 1, got {tau[tensor.name]}")
            span = self._manifest.spans[tensor.name]
            u, b = mean.total[span], self._base[span]
            moved = _squared_distance(u, b, mean.weight_sum * mean.scale)
            spread = self._squares[tensor.name] / mean.weight_sum - moved
            # What equal uploads come to by the last bits of the sums is no discrepancy.
            found = spread if spread > _NOISE * moved else 0.0
            d[tensor.name] = found / (tau[tensor.name] * max(1, tensor.size))
        return d


def _squared_distance(x: NDArray[np.floating[Any]], b: NDArray[np.float32], scale: float = 1.0) -> float:
    """``||x / scale - b||^2``, summed in float64."""
    total = 0.0
    for part in chunks(x.size):
        difference = np.divide(x[part], scale, dtype=np.float64)
        difference -= b[part]
        # Not `@`: its bits would be those of the processor and the number of its threads.
        total += float(np.square(difference).sum())
    return total
