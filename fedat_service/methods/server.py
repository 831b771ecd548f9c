"""The server optimizer axis: the rule behind a method's settings."""

from fedat_service.aggregation.server_optimizer import Adaptive, ServerRate, ServerRule
from fedat_service.wire.settings import ServerOptimizer


def server_rule(settings: ServerOptimizer) -> ServerRule:
    """The behaviour behind a method's server optimizer."""
    match settings.name:
        case "average":
            return ServerRate()
        case "server_lr":
            return ServerRate(settings.gamma)
        case "fedadam" | "fedyogi" | "fedadagrad":
            return Adaptive(
                settings.name, settings.lr, settings.beta1, settings.beta2, settings.tau, settings.v0
            )
