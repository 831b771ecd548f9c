"""The server's half of every local solver: what travels beside the weights, and what the server makes of it.

The client's half trains; both go by one name. Only trainable tensors have slots other than `weights`, so the
vectors here are over `learning(manifest)`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.mean import Weighting
from fedat_service.aggregation.pieces import float_pieces, require_part, rounded
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest
from fedat_service.wire.settings import Slot, Solver

_Vector = NDArray[Any]
_Pieces = Mapping[str, NDArray[np.float64]]
_Receive = Callable[[Solver, _Pieces, _Pieces, float], _Pieces]


@dataclass(frozen=True, slots=True)
class SlotState:
    """What the server remembers for a solver.

    Attributes:
        values: Vectors of shape `(learning(manifest).num_floats,)`, by name; most are slots.
    """

    values: Mapping[str, _Vector]


@dataclass(frozen=True, slots=True)
class ServerHalf:
    """What differs between two solvers on the server.

    Attributes:
        name: The solver's name in a method.
        initial: What the server's vectors are filled with before the first round.
        gathers: Slots that come up in an exchange of their own before anybody trains.
        starts: Slots that go down, whole, before the first local step.
        follows: Slots that go down and come up with the weights of every sync.
        ends: Slots that come up, whole, with the last sync of a round; see `exchanges.plan`.
        weighting: How updates count in the mean of a slot that comes up.
        receive: New pieces of the vectors from the old ones, the means of the slots that came up, and the
            share of all clients that sent them.
        settle: New pieces of the vectors when a round is over, from the old ones and those it began with.
    """

    name: str
    initial: Callable[[Solver], Mapping[str, float]] = lambda _: {}
    gathers: tuple[Slot, ...] = ()
    starts: tuple[Slot, ...] = ()
    follows: tuple[Slot, ...] = ()
    ends: tuple[Slot, ...] = ()
    weighting: Weighting = "uniform"
    receive: _Receive | None = None
    settle: Callable[[Solver, _Pieces, _Pieces], _Pieces] | None = None

    @property
    def num_slots(self) -> int:
        """Most slots beside the weights in one bundle."""
        return max(
            len(self.starts) + len(self.follows), len(self.gathers), len(self.follows) + len(self.ends)
        )


def _control(_: Solver, old: _Pieces, mean: _Pieces, share: float) -> _Pieces:
    """SCAFFOLD (ICML 2020), Algorithm 1: ``c <- c + 1/N sum_S dc = c + |S|/N mean dc``.

    On the due tensors only this is FedALS+SCAFFOLD (FedALS, Algorithm 4): the mean over all clients of the
    variates of one part, as they are after that part's sync.
    """
    return {"control": old["control"] + share * mean["control"]}


def _largest_mean(_: Solver, old: _Pieces, mean: _Pieces, _share: float) -> _Pieces:
    """Fed-LAMB, Algorithm 1, line 20: ``vhat <- max(vhat, mean v_i)``."""
    return {"second_moment": np.maximum(old["second_moment"], mean["second_moment"])}


def _square_of_mean(solver: Solver, old: _Pieces, mean: _Pieces, _share: float) -> _Pieces:
    """Fed-LAMB, Algorithm 1, lines 21-23 (Mime-LAMB), with g the mean of the clients' full gradients.

    ``v <- beta2 v + (1 - beta2) g^2`` and ``vhat <- max(vhat, v)``.
    """
    g = mean["gradient"]
    v = solver.beta2 * old["mean_square"] + (1 - solver.beta2) * g * g
    return {"mean_square": v, "second_moment": np.maximum(old["second_moment"], v)}


def _keep_gradient(_: Solver, _old: _Pieces, mean: _Pieces, _share: float) -> _Pieces:
    """Mime (NeurIPS 2021), Algorithm 1: ``c``, the mean of the full gradients at the round's start."""
    return {"control": mean["gradient"]}


def _momentum(solver: Solver, old: _Pieces, began: _Pieces) -> _Pieces:
    """Mime, Algorithm 1: once a round the base optimizer's state is updated with the round's own ``c``.

    ``m <- beta m + (1 - beta) c``. All local steps of the round used the old m.
    """
    beta = solver.momentum
    return {"momentum": beta * old["momentum"] + (1 - beta) * began["control"]}


def _second_moment_half(name: str) -> ServerHalf:
    return ServerHalf(
        name,
        initial=lambda solver: {"second_moment": solver.eps},
        starts=("second_moment",),
        ends=("second_moment",),
        receive=_largest_mean,
    )


def _mean_gradient_half(name: str) -> ServerHalf:
    return ServerHalf(
        name,
        initial=lambda solver: {"mean_square": 0.0, "second_moment": solver.eps},
        starts=("second_moment",),
        ends=("gradient",),
        receive=_square_of_mean,
    )


HALVES: Mapping[str, ServerHalf] = MappingProxyType(
    {
        half.name: half
        for half in (
            ServerHalf("sgd"),
            ServerHalf("momentum"),
            ServerHalf("adam"),
            ServerHalf("adamw"),
            ServerHalf(
                "scaffold", initial=lambda _: {"control": 0.0}, follows=("control",), receive=_control
            ),
            _second_moment_half("fedams"),
            _second_moment_half("fedlamb"),
            _mean_gradient_half("mimelamb"),
            _mean_gradient_half("mimeams"),
            ServerHalf(
                "mime",
                initial=lambda _: {"control": 0.0, "momentum": 0.0},
                gathers=("gradient",),
                starts=("control", "momentum"),
                weighting="samples",
                receive=_keep_gradient,
                settle=_momentum,
            ),
        )
    }
)


def half_for(solver: Solver) -> ServerHalf:
    """The server's half of a method's solver."""
    return HALVES[solver.name]


def learning(manifest: Manifest) -> Manifest:
    """The trainable tensors of a model: what slots other than `weights` are made of.

    Raises:
        ManifestError: If there is none.
    """
    return Manifest(tuple(tensor for tensor in manifest.tensors if tensor.trainable))


def start(half: ServerHalf, solver: Solver, manifest: Manifest) -> SlotState:
    """The server's vectors before the first round."""
    size = sum(tensor.size for tensor in manifest.tensors if tensor.trainable)
    return SlotState({name: np.full(size, fill, np.float32) for name, fill in half.initial(solver).items()})


def receive(
    half: ServerHalf,
    solver: Solver,
    state: SlotState,
    manifest: Manifest,
    means: Mapping[Slot, _Vector],
    due: Manifest,
    num_updates: int,
    num_clients: int,
) -> SlotState:
    """Close a sync at which slots other than the weights came up.

    Args:
        half: The solver's server half.
        solver: The solver's numbers.
        state: The server's vectors; they are not written to.
        manifest: The model.
        means: Mean of the uploads, over `due`, for each slot that came up.
        due: The trainable tensors that came up.
        num_updates: ``|S|``, clients that sent them.
        num_clients: ``N``, clients that there are.

    Raises:
        RuleError: If the slots are not the solver's, or more clients sent them than there are.
        ManifestError: If a due tensor does not learn or is not the model's, or a mean has not its size.
    """
    rule = _require_means(half, means, due)
    if not 1 <= num_updates <= num_clients:
        raise RuleError(f"{num_updates} updates of {num_clients} clients")
    whole = learning(manifest)
    require_part(whole, due)
    values = {name: vector.copy() for name, vector in state.values.items()}
    for here, there in float_pieces(whole, due, due.tensors):
        old = {name: vector[here].astype(np.float64) for name, vector in values.items()}
        sent: _Pieces = {slot: vector[there].astype(np.float64) for slot, vector in means.items()}
        for name, piece in rule(solver, old, sent, num_updates / num_clients).items():
            values[name][here] = rounded(piece, values[name].dtype)
    return SlotState(values)


def settle(half: ServerHalf, solver: Solver, state: SlotState, began: Sequence[SlotState]) -> SlotState:
    """Close rounds: what a solver makes of its own vectors, if anything.

    Args:
        half: The solver's server half.
        solver: The solver's numbers.
        state: The server's vectors; they are not written to.
        began: What the rounds trained with. Other rounds may have begun since, and have changed `state`.
    """
    if half.settle is None or not began:
        return state
    values = dict(state.values)
    old = {name: vector.astype(np.float64) for name, vector in values.items()}
    means = {name: np.stack([one.values[name] for one in began]).mean(0, np.float64) for name in values}
    for name, vector in half.settle(solver, old, means).items():
        values[name] = rounded(vector, values[name].dtype)
    return SlotState(values)


def _require_means(half: ServerHalf, means: Mapping[Slot, _Vector], due: Manifest) -> _Receive:
    wanted = half.gathers + half.follows + half.ends
    if half.receive is None or set(means) != set(wanted):
        raise RuleError(f"solver {half.name} sends slots {list(wanted)}, got {list(means)}")
    for slot, mean in means.items():
        if mean.shape != (due.num_floats,):
            raise ManifestError(f"slot {slot!r} has {due.num_floats} values, got {list(mean.shape)}")
    return half.receive
