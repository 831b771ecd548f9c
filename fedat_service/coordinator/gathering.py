"""The updates of one sync, as they come: a running mean a slot, and how far the weights lie apart."""

from itertools import groupby
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.discrepancy import Drift
from fedat_service.aggregation.mean import RunningMean, add_values, update_weight
from fedat_service.errors import RuleError
from fedat_service.federation.spec import Spec
from fedat_service.params import Manifest, Model
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.codecs import Codec, Int64, make_codec
from fedat_service.wire.differences import differential
from fedat_service.wire.entries import Entry
from fedat_service.wire.rounded import Rounded
from fedat_service.wire.settings import Slot

_slot = attrgetter("slot")


class Gathering:
    """Memory of one model a slot, however many clients report; what has come is what there is a mean of.

    Args:
        spec: The federation.
        drift_from: Values near all updates, if their discrepancies will be asked for.

    Attributes:
        parts: The tensors that came, by slot.
        means: Their running means.
    """

    def __init__(self, spec: Spec, drift_from: Model | None = None) -> None:
        self.parts: dict[Slot, Manifest] = {}
        self.means: dict[Slot, RunningMean] = {}
        self._spec = spec
        self._scale = make_codec(spec.method.codec).scale
        self._drift_from = drift_from
        self._drift: Drift | None = None

    def add(self, update: Bundle, weight: float, base: Model) -> None:
        """Decode a checked update straight into the means.

        Args:
            update: What came.
            weight: What its weights count.
            base: What its differences are to, as its client got it.
        """
        beside = update_weight(update.num_examples or 1, self._spec.half.weighting)
        for slot, entries in groupby(update.entries, _slot):
            self._add(slot, tuple(entries), weight if slot == "weights" else beside, base)

    def _add(self, slot: Slot, entries: tuple[Entry, ...], weight: float, base: Model) -> None:
        if slot not in self.means:
            self._open(slot, entries)
        part, mean = self.parts[slot], self.means[slot]
        integers = np.empty(part.num_integers, np.int64)
        for entry in entries:
            span = part.spans[entry.tensor.name]
            if isinstance(entry.codec, Int64):
                integers[span] = entry.codec.decode(entry.payload, entry.tensor.size)
                continue
            began = base.floats[self._spec.manifest.spans[entry.tensor.name]]
            _add_entry(entry.codec, entry, began, weight, mean.total[span])
            if slot == "weights" and self._drift is not None:
                # As the means count them: rounded to float32, equal values would seem to differ.
                values = np.zeros(entry.tensor.size)
                _add_entry(entry.codec, entry, began, 1.0, values)
                self._drift.add(entry.tensor.name, values / self._scale, weight)
        mean.admit(integers, weight)

    def _open(self, slot: Slot, entries: tuple[Entry, ...]) -> None:
        whole = self._spec.manifest
        part = whole if len(entries) == len(whole.tensors) else Manifest(tuple(e.tensor for e in entries))
        self.parts[slot] = part
        self.means[slot] = RunningMean(part, self._scale if slot == "weights" else 1.0)
        if slot == "weights" and self._drift_from is not None:
            self._drift = Drift(part, written_over(part, self._drift_from, whole).floats)

    def discrepancies(self, intervals: dict[str, int]) -> dict[str, float]:
        """FedLAMA's unit discrepancy of each trainable tensor; see `Drift.discrepancies`.

        Raises:
            RuleError: If they were not gathered.
        """
        if self._drift is None:
            raise RuleError("the discrepancies of this sync were not gathered")
        return self._drift.discrepancies(self.means["weights"], intervals)


def _add_entry(
    codec: Codec | Rounded,
    entry: Entry,
    began: NDArray[np.float32],
    weight: float,
    total: NDArray[np.float64],
) -> None:
    """Decode a tensor straight into a sum; differences count with what they are to."""
    codec.add(entry.payload, weight, total)
    if entry.reference == "base":
        add_values(differential(entry).on_grid(began), weight, total)


def written_over(target: Manifest, source: Model, of: Manifest, under: Model | None = None) -> Model:
    """A model of `target` with the values of another that it shares tensors with.

    Args:
        target: What the new model is made of.
        source: The values.
        of: What they are of.
        under: Values of the tensors that `source` has not.
    """
    floats = np.zeros(target.num_floats, np.float32) if under is None else under.floats.copy()
    integers = np.zeros(target.num_integers, np.int64) if under is None else under.integers.copy()
    for tensor in target.tensors:
        there = of.spans.get(tensor.name)
        if there is not None:
            here = target.spans[tensor.name]
            if tensor.dtype == "int64":
                integers[here] = source.integers[there]
            else:
                floats[here] = source.floats[there]
    return Model(floats, integers)
