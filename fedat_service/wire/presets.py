"""Methods with a name: rows of the five axes, ready to use."""

from collections.abc import Mapping
from types import MappingProxyType

from fedat_service.errors import Unprocessable
from fedat_service.wire.settings import CodecSettings, Method, Participation, ServerOptimizer, Solver


def _adam(prox_mu: float) -> Solver:
    """Local work of FedAT's experiments (SC '21, section 6): Adam, three epochs, batches of ten."""
    return Solver(name="adam", lr=1e-3, epochs=3, batch_size=10, prox_mu=prox_mu)


# Papers of server optimizers and of quantised updates average their clients alike.
_UNIFORM = Participation(name="fedavg", weighting="uniform")

PRESETS: Mapping[str, Method] = MappingProxyType(
    {
        "fedavg": Method(
            participation=Participation(name="fedavg"),
            solver=_adam(prox_mu=0.0),
            codec=CodecSettings(name="float32"),
        ),
        # The mu of FedLAMA's FedProx experiments (AAAI '23); FedAT's own is 0.4.
        "fedprox": Method(
            participation=Participation(name="fedavg"),
            solver=_adam(prox_mu=0.001),
            codec=CodecSettings(name="float32"),
        ),
        # TiFL picks whom FedAvg trains; what they train is the same.
        "tifl": Method(
            participation=Participation(name="tifl"),
            solver=_adam(prox_mu=0.0),
            codec=CodecSettings(name="float32"),
        ),
        # The rho of FedAsync's own experiments (Xie et al., 2019).
        "fedasync": Method(
            participation=Participation(name="fedasync"),
            solver=_adam(prox_mu=0.005),
            codec=CodecSettings(name="float32"),
        ),
        "fedbuff": Method(
            participation=Participation(name="fedbuff"),
            solver=_adam(prox_mu=0.0),
            codec=CodecSettings(name="float32"),
        ),
        "fedat": Method(
            participation=Participation(name="fedat"),
            solver=_adam(prox_mu=0.4),
            codec=CodecSettings(name="polyline", precision=4, layout="pairs"),
        ),
        # Reddi et al. (ICLR 2021), Algorithm 2, with the betas of its experiments; the rate and tau are tuned
        # there for each task. `v` starts from tau^2, the least that it asks for. Adp-Fed of Fed-LAMB's paper.
        "fedadam": Method(
            participation=_UNIFORM,
            solver=_adam(prox_mu=0.0),
            server=ServerOptimizer(name="fedadam", lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3, v0=1e-6),
            codec=CodecSettings(name="float32"),
        ),
        # Reisizadeh et al. (AISTATS 2020), with the 16 levels of FedLAMA's experiments.
        "fedpaq": Method(
            participation=_UNIFORM,
            solver=_adam(prox_mu=0.0),
            codec=CodecSettings(name="qsgd", levels=16),
        ),
        # Haddadpour et al. (AISTATS 2021): FedPAQ with a server rate, to be tuned from 1 (FedPAQ) to 4.
        "fedcom": Method(
            participation=_UNIFORM,
            solver=_adam(prox_mu=0.0),
            server=ServerOptimizer(name="server_lr", gamma=2.0),
            codec=CodecSettings(name="qsgd", levels=16),
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
    return PRESETS[method]
