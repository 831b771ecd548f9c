import pytest

from fedat_service.errors import RuleError
from fedat_service.methods.travel import travel
from fedat_service.params import Manifest, TensorSpec
from fedat_service.wire.settings import Method, Schedule, Solver

MODEL = Manifest(
    (
        TensorSpec("a.weight", (5, 4), "float32", "a"),
        TensorSpec("a.running_mean", (4,), "float32", "a", trainable=False),
        TensorSpec("b.weight", (2, 4), "float32", "b"),
    )
)


def test_buffers_travel_with_the_weights_and_in_no_other_slot():
    counted = travel(Method(solver=Solver(name="scaffold")), MODEL)
    assert counted.up == {
        "weights": {"a.weight": 1, "a.running_mean": 1, "b.weight": 1},
        "control": {"a.weight": 1, "b.weight": 1},
    }


def test_the_round_that_is_counted_sends_second_moments():
    counted = travel(Method(solver=Solver(name="fedlamb", moment_every=5)), MODEL)
    assert set(counted.up) == {"weights", "second_moment"}


def test_fedlamas_round_is_one_after_its_warm_up():
    counted = travel(Method(schedule=Schedule(name="fedlama", phi=4, warmup_blocks=100)), MODEL)
    assert counted.down["weights"] == {"a.weight": 1, "a.running_mean": 4, "b.weight": 4}
    assert counted.exchanges == 4


def test_fedlama_with_phi_1_sends_as_fedavg_does():
    assert travel(Method(schedule=Schedule(name="fedlama", phi=1)), MODEL) == travel(Method(), MODEL)


def test_a_head_that_the_model_does_not_have_is_refused():
    with pytest.raises(RuleError, match="'nose'"):
        travel(Method(schedule=Schedule(name="fedals", head=("nose",))), MODEL)
