"""Methods with a name: rows of the five axes, ready to use."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from fedat_service.errors import Unprocessable
from fedat_service.wire.settings import (
    CodecSettings,
    Method,
    Participation,
    Schedule,
    ServerOptimizer,
    Solver,
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A row of the five axes, and the paper that it is from."""

    method: Method
    paper: str


_FEDAT_PAPER = "FedAT (Chai et al., SC 2021)"
_PROX_PAPER = "FedProx (Li et al., MLSys 2020)"
_PAQ_PAPER = "FedPAQ (Reisizadeh et al., AISTATS 2020)"
_LAMA_PAPER = "FedLAMA (Lee et al., AAAI 2023)"
_ALS_PAPER = "FedALS (Gholami and Seferoglu, TMLR)"
_SCAFFOLD_PAPER = "SCAFFOLD (Karimireddy et al., ICML 2020)"
_LAMB_PAPER = "Fed-LAMB (Karimi et al., UAI 2023)"
_FEDADAM_PAPER = "FedAdam (Reddi et al., ICLR 2021)"
_MIME_PAPER = "Mime (Karimireddy et al., NeurIPS 2021)"

_FEDAVG = Participation(name="fedavg")
# Papers of server optimizers, quantised updates, schedules and shared moments average their clients alike.
_UNIFORM = Participation(name="fedavg", weighting="uniform")
_FEDAT = Participation(name="fedat")
_FEDALS = Schedule(name="fedals", alpha=10, head="classifier")
_FEDLAMA = Schedule(name="fedlama", phi=2)
_FLOAT32 = CodecSettings(name="float32")
_POLYLINE = CodecSettings(name="polyline", precision=4, layout="pairs")
# The 16 levels of FedLAMA's experiments.
_QSGD = CodecSettings(name="qsgd", levels=16)


def _row(
    paper: str,
    participation: Participation,
    solver: Solver,
    *,
    schedule: Schedule | None = None,
    server: ServerOptimizer | None = None,
    codec: CodecSettings = _FLOAT32,
) -> Preset:
    method = Method(
        participation=participation,
        schedule=schedule or Schedule(),
        solver=solver,
        server=server or ServerOptimizer(),
        codec=codec,
    )
    return Preset(method, paper)


def _adam(prox_mu: float = 0.0, steps: int | None = None) -> Solver:
    """Local work of FedAT's experiments (section 6): Adam, three epochs, batches of ten.

    Methods about participation, the wire and the server have it too, whatever their papers trained with:
    they are compared for what they are about.
    """
    return Solver(name="adam", lr=1e-3, epochs=3, steps=steps, batch_size=10, prox_mu=prox_mu)


def _lama(prox_mu: float = 0.0) -> Solver:
    """Local work of FedLAMA's experiments (Table 1): ten steps between two syncs, and the momentum stays."""
    return Solver(
        name="momentum",
        lr=0.2,
        weight_decay=1e-4,
        steps=10,
        batch_size=32,
        reset="never",
        prox_mu=prox_mu,
    )


def _als(name: Literal["momentum", "scaffold"]) -> Solver:
    """Local work of FedALS's experiments (Table 4): five steps between two syncs, rates tuned from 0.01.

    SCAFFOLD's option II holds for SGD without momentum.
    """
    reset: Literal["round", "never"] = "never" if name == "momentum" else "round"
    return Solver(name=name, lr=0.01, weight_decay=1e-4, steps=5, batch_size=64, reset=reset)


def _lamb(name: Literal["sgd", "fedams", "fedlamb", "mime", "mimelamb", "mimeams"], lr: float) -> Solver:
    """Local work of Fed-LAMB's experiments (section 5): one epoch, batches of 128; the rates are tuned.

    The paper has no number for the first second moment, `eps`; 1e-6 makes its root FedAdam's tau.
    """
    shares_moment = name not in ("sgd", "mime")
    return Solver(name=name, lr=lr, epochs=1, batch_size=128, eps=1e-6 if shares_moment else 1e-7)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "fedavg": _row("FedAvg (McMahan et al., AISTATS 2017)", _FEDAVG, _adam()),
        # The mu of FedLAMA's FedProx experiments; FedAT's own is 0.4.
        "fedprox": _row(_PROX_PAPER, _FEDAVG, _adam(prox_mu=0.001)),
        # TiFL picks whom FedAvg trains; what they train is the same.
        "tifl": _row("TiFL (Chai et al., HPDC 2020)", Participation(name="tifl"), _adam()),
        # The rho of FedAsync's own experiments.
        "fedasync": _row("FedAsync (Xie et al., 2019)", Participation(name="fedasync"), _adam(prox_mu=0.005)),
        "fedbuff": _row("FedBuff (Nguyen et al., AISTATS 2022)", Participation(name="fedbuff"), _adam()),
        "fedat": _row(_FEDAT_PAPER, _FEDAT, _adam(prox_mu=0.4), codec=_POLYLINE),
        "fedlama": _row(_LAMA_PAPER, _UNIFORM, _lama(), schedule=_FEDLAMA),
        "fedals": _row(_ALS_PAPER, _UNIFORM, _als("momentum"), schedule=_FEDALS),
        "scaffold": _row(_SCAFFOLD_PAPER, _UNIFORM, _als("scaffold")),
        # FedALS, Algorithm 4.
        "fedals+scaffold": _row(
            f"{_ALS_PAPER}; {_SCAFFOLD_PAPER}", _UNIFORM, _als("scaffold"), schedule=_FEDALS
        ),
        "fedpaq": _row(_PAQ_PAPER, _UNIFORM, _adam(), codec=_QSGD),
        # FedPAQ with a server rate, to be tuned from 1 (FedPAQ) to 4.
        "fedcom": _row(
            "FedCOM (Haddadpour et al., AISTATS 2021)",
            _UNIFORM,
            _adam(),
            server=ServerOptimizer(name="server_lr", gamma=2.0),
            codec=_QSGD,
        ),
        # FedLAMA, Table 4.
        "fedprox+fedlama": _row(
            f"{_PROX_PAPER}; {_LAMA_PAPER}", _UNIFORM, _lama(prox_mu=0.001), schedule=_FEDLAMA
        ),
        "fedpaq+fedlama": _row(
            f"{_PAQ_PAPER}; {_LAMA_PAPER}", _UNIFORM, _lama(), schedule=_FEDLAMA, codec=_QSGD
        ),
        "fedlamb": _row(_LAMB_PAPER, _UNIFORM, _lamb("fedlamb", lr=0.01)),
        "mimelamb": _row(_LAMB_PAPER, _UNIFORM, _lamb("mimelamb", lr=0.01)),
        "fedams": _row("Fed-AMS (Chen et al., FODS 2020)", _UNIFORM, _lamb("fedams", lr=1e-3)),
        # As its authors' FedJAX counts clients: by their examples.
        "mime": _row(_MIME_PAPER, _FEDAVG, _lamb("mime", lr=0.1)),
        # What Fed-LAMB's experiments hold Mime-LAMB against.
        "mime-ams": _row(f"{_MIME_PAPER}; {_LAMB_PAPER}", _UNIFORM, _lamb("mimeams", lr=1e-3)),
        # Algorithm 2 with the betas of its experiments, which tune rates and tau for every task; `v` starts
        # from tau^2, the least that it asks for.
        "fedadam": _row(
            _FEDADAM_PAPER,
            _UNIFORM,
            _adam(),
            server=ServerOptimizer(name="fedadam", lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3, v0=1e-6),
        ),
        # FedAdam as Fed-LAMB's experiments have it: SGD at the clients, the betas of all its methods.
        "adp-fed": _row(
            f"{_FEDADAM_PAPER}; {_LAMB_PAPER}",
            _UNIFORM,
            _lamb("sgd", lr=0.1),
            server=ServerOptimizer(name="fedadam", lr=0.01, beta1=0.9, beta2=0.999, tau=1e-3, v0=1e-6),
        ),
        # FedAT's local work is FedLAMA's base interval: after two of them all tensors are in sync.
        "fedat+fedlama": _row(
            f"{_FEDAT_PAPER}; {_LAMA_PAPER}",
            _FEDAT,
            _adam(prox_mu=0.4),
            schedule=_FEDLAMA,
            codec=_POLYLINE,
        ),
        # FedALS's tau and alpha: a round has fifty steps in all.
        "fedat+fedals": _row(
            f"{_FEDAT_PAPER}; {_ALS_PAPER}",
            _FEDAT,
            _adam(prox_mu=0.4, steps=5),
            schedule=_FEDALS,
            codec=_POLYLINE,
        ),
    }
)


def resolve(method: Method | str) -> Method:
    """A method as it is, or the one that a preset's name stands for.

    Raises:
        Unprocessable: If no preset has that name.
    """
    if isinstance(method, Method):
        return method
    if method not in PRESETS:
        raise Unprocessable(f"no method {method!r}; there are {', '.join(sorted(PRESETS))}", "method")
    return PRESETS[method].method
