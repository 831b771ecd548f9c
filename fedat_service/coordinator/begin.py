"""What clients begin an exchange with."""

import hashlib
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from fedat_service.methods.solvers import SlotState
from fedat_service.params import Model
from fedat_service.wire.codecs import Codec, Float32

NO_SLOTS = SlotState({})


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Begin:
    """What clients begin an exchange with: the model, and what the solver sends beside it."""

    model: Model
    slots: SlotState

    def digest(self) -> str:
        """Hex digest of all values, bit for bit."""
        state = hashlib.blake2b(self.model.digest().encode(), digest_size=16)
        for name, values in sorted(self.slots.values.items()):
            state.update(name.encode())
            state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()


class AsSent:
    """Models as their codec gives them to the clients: each is made once, and goes with what it is of.

    Args:
        codec: How the models travel.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._made: WeakKeyDictionary[Begin, Model] = WeakKeyDictionary()

    def __call__(self, begin: Begin) -> Model:
        """What clients start from, and updates step from."""
        model = begin.model
        if isinstance(self._codec, Float32):
            return model
        if begin not in self._made:
            floats = self._codec.decode(self._codec.encode(model.floats), model.floats.size)
            self._made[begin] = Model(floats, model.integers)
        return self._made[begin]
