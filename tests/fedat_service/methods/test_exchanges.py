from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import RuleError
from fedat_service.methods.exchanges import plan
from fedat_service.methods.solvers import HALVES, half_for, start
from fedat_service.params import Manifest, TensorSpec
from fedat_service.schedules.cycle import Cycle, uniform
from fedat_service.schedules.fedals import fedals
from fedat_service.wire.settings import Solver

NETWORK = Manifest(
    (
        TensorSpec("phi.weight", (2, 2), "float32", "phi"),
        TensorSpec("phi.mean", (2,), "float32", "phi", trainable=False),
        TensorSpec("h.weight", (3,), "float32", "h"),
    )
)
NAMES = tuple(t.name for t in NETWORK.tensors)
TRAINED = ("phi.weight", "h.weight")


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_plain_solvers_exchange_weights_only(name):
    (exchange,) = plan(half_for(Solver(name=name)), uniform(NAMES), NETWORK, 1)
    assert (exchange.blocks, exchange.down, exchange.up) == (1, {"weights": NAMES}, {"weights": NAMES})
    assert start(half_for(Solver(name=name)), Solver(), NETWORK).values == {}


def test_control_variates_go_with_the_weights_of_each_part():
    first, second = plan(HALVES["scaffold"], fedals(NETWORK, NAMES, 2, {"h"}), NETWORK, 1)
    assert first.down == {"weights": NAMES, "control": TRAINED}
    assert first.up == second.down == {"weights": ("h.weight",), "control": ("h.weight",)}
    assert second.up == {"weights": NAMES, "control": TRAINED}


@pytest.mark.parametrize(("name", "slot"), [("fedams", "second_moment"), ("mimelamb", "gradient")])
def test_second_moments_go_down_first_and_come_up_last(name, slot):
    first, second = plan(HALVES[name], fedals(NETWORK, NAMES, 2, {"h"}), NETWORK, 1)
    assert first.down == {"weights": NAMES, "second_moment": TRAINED}
    assert first.up == second.down == {"weights": ("h.weight",)}
    assert second.up == {"weights": NAMES, slot: TRAINED}


def test_mime_asks_for_a_gradient_before_anybody_trains():
    gradient, first, second = plan(HALVES["mime"], fedals(NETWORK, NAMES, 2, {"h"}), NETWORK, 1)
    assert (gradient.blocks, gradient.down, gradient.up) == (0, {"weights": NAMES}, {"gradient": TRAINED})
    assert first.down == {"control": TRAINED, "momentum": TRAINED}
    assert first.up == second.down == {"weights": ("h.weight",)}
    assert second.up == {"weights": NAMES}


@given(st.sampled_from(sorted(HALVES)), st.integers(1, 4), st.integers(1, 4), st.data())
def test_every_round_trains_its_length_and_fetches_what_was_averaged(name, scale, round_index, data):
    length = 4 * scale
    intervals = {n: data.draw(st.sampled_from([1, 2, 4, length])) for n in NAMES}
    cycle = Cycle(length, intervals)
    exchanges = plan(HALVES[name], cycle, NETWORK, round_index, 2)
    assert sum(exchange.blocks for exchange in exchanges) == length
    assert exchanges[0].down["weights"] == exchanges[-1].up["weights"] == NAMES
    trained = [exchange for exchange in exchanges if exchange.blocks]
    for before, after in pairwise(trained):
        assert after.down["weights"] == before.up["weights"] != ()
    for exchange in exchanges:
        for slot, tensors in (*exchange.down.items(), *exchange.up.items()):
            assert slot == "weights" or "phi.mean" not in tensors


def test_syncs_without_a_due_tensor_are_trained_through():
    exchanges = plan(HALVES["sgd"], Cycle(6, {"phi.weight": 3, "h.weight": 2}), NETWORK, 1)
    assert [exchange.blocks for exchange in exchanges] == [2, 1, 1, 2]


@pytest.mark.parametrize(("round_index", "sync_every"), [(0, 1), (1, 0)])
def test_rounds_count_from_1(round_index, sync_every):
    with pytest.raises(RuleError, match=f"got {round_index} and {sync_every}"):
        plan(HALVES["sgd"], uniform(NAMES), NETWORK, round_index, sync_every)
