"""How the mean of a round moves a model: by replacing it, by a rate, or by adaptive steps."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedat_service.aggregation.pieces import float_pieces, require_part, rounded
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model

_Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Moments:
    """What an adaptive server remembers: `m` and `v` of shape `(num_floats,)`, empty if it need not.

    Elements of buffers stay as they start: only what learns has moments.
    """

    m: _Floats
    v: _Floats


class ServerRule(Protocol):
    """A value of the server optimizer axis."""

    def start(self, size: int) -> Moments:
        """The moments of a model of `size` floats before the first round."""
        ...

    def step(self, state: Moments, x: _Floats, mean: _Floats) -> tuple[Moments, _Floats]:
        """Move some elements of a model, and their moments, toward the mean of their updates.

        Arguments are not written to. It is computed in float64 and rounded to the types of the arguments,
        within their range.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServerRate:
    """``x + gamma (mean - x)``: the average for 1, FedCOM's gamma, SCAFFOLD's eta_g.

    Haddadpour et al., FedCOM (AISTATS 2021), Algorithm 1; Karimireddy et al., SCAFFOLD (ICML 2020), eq. 5.

    Raises:
        RuleError: If the rate is not positive.
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise RuleError(f"a server rate must be positive, got {self.gamma!r}")

    def start(self, size: int) -> Moments:
        """See `ServerRule`; nothing is remembered."""
        return Moments(np.empty(0, np.float32), np.empty(0, np.float32))

    def step(self, state: Moments, x: _Floats, mean: _Floats) -> tuple[Moments, _Floats]:
        """See `ServerRule`; with rate 1 the mean is taken as it is, bit for bit."""
        if self.gamma == 1:
            return state, mean
        new = np.subtract(mean, x, dtype=np.float64)
        new *= self.gamma
        new += x
        return state, rounded(new, x.dtype)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """FedAdam, FedYogi and FedAdagrad: the mean update is a gradient for an adaptive optimizer.

    Reddi et al., Adaptive Federated Optimization (ICLR 2021), Algorithm 2, with ``D = mean - x``::

        m <- beta1 m + (1 - beta1) D
        v <- v + D^2                            fedadagrad
        v <- v - (1 - beta2) D^2 sign(v - D^2)  fedyogi
        v <- beta2 v + (1 - beta2) D^2          fedadam
        x <- x + lr m / (sqrt(v) + tau)

    There is no bias correction, and tau stands outside the root.

    Args:
        rule: Which of the three.
        lr: Server learning rate ``eta``.
        beta1: Decay of the first moment.
        beta2: Decay of the second moment; FedAdagrad has none.
        tau: Degree of adaptivity: the smaller, the more the steps of all elements are alike.
        v0: What `v` starts from. The paper asks for at least ``tau**2``; other implementations take 0.

    Raises:
        RuleError: If a number is out of range.
    """

    rule: Literal["fedadam", "fedyogi", "fedadagrad"]
    lr: float
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    v0: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise RuleError(f"betas must be in [0, 1), got {self.beta1!r} and {self.beta2!r}")
        if not (self.lr > 0 and self.tau > 0 and self.v0 >= 0):
            raise RuleError(f"lr and tau must be > 0, v0 >= 0, got {self.lr!r}, {self.tau!r}, {self.v0!r}")

    def start(self, size: int) -> Moments:
        """See `ServerRule`."""
        return Moments(np.zeros(size, np.float32), np.full(size, self.v0, np.float32))

    def step(self, state: Moments, x: _Floats, mean: _Floats) -> tuple[Moments, _Floats]:
        """See `ServerRule`."""
        delta = np.subtract(mean, x, dtype=np.float64)
        m = self.beta1 * state.m.astype(np.float64) + (1 - self.beta1) * delta
        v = self._second_moment(state.v.astype(np.float64), delta * delta)
        new = x + self.lr * m / (np.sqrt(v) + self.tau)
        return Moments(rounded(m, state.m.dtype), rounded(v, state.v.dtype)), rounded(new, x.dtype)

    def _second_moment(self, v: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
        match self.rule:
            case "fedadagrad":
                return v + squares
            case "fedyogi":
                return v - (1 - self.beta2) * squares * np.sign(v - squares)
            case "fedadam":
                return self.beta2 * v + (1 - self.beta2) * squares


def move(
    rule: ServerRule, state: Moments, current: Model, manifest: Manifest, mean: Model, due: Manifest
) -> tuple[Moments, Model]:
    """Apply a server optimizer to the tensors of a sync.

    Trainable tensors move by the rule. Buffers take the mean, integers the value that `mean` has for them.
    Tensors that are not due stay, and so do their moments. Beside the results only pieces that stay in the
    cache are allocated.

    Args:
        rule: The server optimizer.
        state: Its moments, for the whole model.
        current: The whole model, each tensor as it was at its last sync.
        manifest: What the whole model is made of.
        mean: The mean of the updates.
        due: What `mean` is made of: all tensors of the model, or some.

    Raises:
        ManifestError: If a due tensor is not in the model, or the sizes do not fit the manifests.
    """
    _require_fit(current, manifest)
    _require_fit(mean, due)
    require_part(manifest, due)
    floats, integers = current.floats.copy(), current.integers.copy()
    m, v = state.m.copy(), state.v.copy()
    for here, there in float_pieces(manifest, due, (t for t in due.tensors if t.trainable)):
        moments, floats[here] = rule.step(Moments(m[here], v[here]), current.floats[here], mean.floats[there])
        m[here], v[here] = moments.m, moments.v
    for tensor in due.tensors:
        here, there = manifest.spans[tensor.name], due.spans[tensor.name]
        if tensor.dtype == "int64":
            integers[here] = mean.integers[there]
        elif not tensor.trainable:
            floats[here] = mean.floats[there]
    return Moments(m, v), Model(floats, integers)


def _require_fit(model: Model, manifest: Manifest) -> None:
    if (model.floats.size, model.integers.size) != (manifest.num_floats, manifest.num_integers):
        raise ManifestError(
            f"{manifest.num_floats} floats and {manifest.num_integers} integers are expected, "
            f"got {model.floats.size} and {model.integers.size}"
        )
