import pytest

from fedat_service.aggregation.server_optimizer import Adaptive, ServerRate
from fedat_service.methods.server import server_rule
from fedat_service.wire.settings import ServerOptimizer


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (ServerOptimizer(), ServerRate(1.0)),
        (ServerOptimizer(name="server_lr", gamma=4.0), ServerRate(4.0)),
        (
            ServerOptimizer(name="fedadam", lr=0.2, beta1=0.8, beta2=0.9, tau=0.01, v0=1e-4),
            Adaptive("fedadam", 0.2, 0.8, 0.9, 0.01, 1e-4),
        ),
        (ServerOptimizer(name="fedyogi"), Adaptive("fedyogi", 0.1)),
        (ServerOptimizer(name="fedadagrad", beta1=0.0), Adaptive("fedadagrad", 0.1, beta1=0.0)),
    ],
)
def test_settings_become_the_rule_with_their_numbers(settings, rule):
    assert server_rule(settings) == rule


def test_the_default_leaves_the_mean_as_it_is():
    assert server_rule(ServerOptimizer(name="server_lr")) == server_rule(ServerOptimizer())
