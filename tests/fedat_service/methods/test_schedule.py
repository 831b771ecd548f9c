import pytest

from fedat_service.errors import RuleError
from fedat_service.methods.schedule import first_cycle, measures, next_cycle
from fedat_service.params import Manifest, TensorSpec
from fedat_service.schedules.cycle import uniform
from fedat_service.wire.settings import Schedule

NETWORK = Manifest(
    (
        TensorSpec("conv.weight", (8, 3, 3, 3), "float32", "conv"),
        TensorSpec("bn.running_mean", (8,), "float32", "bn", trainable=False),
        TensorSpec("bn.batches", (), "int64", "bn", trainable=False),
        TensorSpec("fc.weight", (10, 8), "float32", "fc"),
        TensorSpec("fc.bias", (10,), "float32", "fc"),
    )
)
NAMES = tuple(t.name for t in NETWORK.tensors)
LEARNING = ("conv.weight", "fc.weight", "fc.bias")
D = {"conv.weight": 0.5, "fc.weight": 1.0, "fc.bias": 1.0}


def test_full_sends_everything_at_the_one_sync_of_a_round():
    assert first_cycle(Schedule(), NETWORK) == uniform(NAMES)


@pytest.mark.parametrize("head", ["classifier", 1, ("f?",)])
def test_fedals_sends_its_head_more_often(head):
    cycle = first_cycle(Schedule(name="fedals", alpha=3, head=head), NETWORK)
    assert cycle.due(1) == cycle.due(2) == ("fc.weight", "fc.bias")
    assert cycle.due(3) == NAMES


def test_a_head_that_matches_nothing_is_refused():
    with pytest.raises(RuleError, match="head pattern 'lstm'"):
        first_cycle(Schedule(name="fedals", head=("fc", "lstm")), NETWORK)


def test_fedlama_begins_with_everything_at_every_sync():
    assert first_cycle(Schedule(name="fedlama", phi=4), NETWORK) == uniform(NAMES, 4)


def test_fedlama_with_phi_1_is_fedavg_at_any_time():
    schedule = Schedule(name="fedlama", phi=1)
    assert first_cycle(schedule, NETWORK) == first_cycle(Schedule(), NETWORK)
    assert not measures(schedule, 1000)


def test_fedlama_adjusts_to_what_was_measured():
    schedule = Schedule(name="fedlama", phi=2)
    cycle = next_cycle(schedule, NETWORK, first_cycle(schedule, NETWORK), D)
    assert cycle.due(1) == ("bn.running_mean", "bn.batches", "fc.weight", "fc.bias")
    assert cycle.due(2) == NAMES


@pytest.mark.parametrize(
    ("rule", "unit", "short"),
    [
        ("text", "kernel-tensor", NAMES[1:]),
        ("official", "layer", ("bn.running_mean", "bn.batches", "fc.weight", "fc.bias")),
        ("text", "layer", NAMES),
    ],
)
def test_rule_and_unit_are_the_settings(rule, unit, short):
    schedule = Schedule(name="fedlama", phi=2, rule=rule, unit=unit)
    # Of the text's units the convolution is one at d = 0.1, where delta = .19 < 1 - lambda = .27, not at 0.5.
    d = D | {"conv.weight": 0.1} if unit == "kernel-tensor" else D
    assert next_cycle(schedule, NETWORK, first_cycle(schedule, NETWORK), d).due(1) == short


@pytest.mark.parametrize(("name", "blocks"), [("full", 100), ("fedals", 100), ("fedlama", 6)])
def test_nothing_is_measured_in_vain(name, blocks):
    assert not measures(Schedule(name=name), blocks)


@pytest.mark.parametrize(("warmup_blocks", "blocks"), [(6, 8), (0, 2)])
def test_fedlama_measures_after_the_warm_up(warmup_blocks, blocks):
    assert measures(Schedule(name="fedlama", warmup_blocks=warmup_blocks), blocks)


@pytest.mark.parametrize("name", ["full", "fedals", "fedlama"])
def test_local_buffers_never_travel(name):
    cycle = first_cycle(Schedule(name=name, buffers="local"), NETWORK)
    assert tuple(cycle.intervals) == LEARNING


def test_local_buffers_do_not_travel_once_fedlama_has_adjusted_either():
    schedule = Schedule(name="fedlama", buffers="local")
    adjusted = next_cycle(schedule, NETWORK, first_cycle(schedule, NETWORK), D)
    assert tuple(adjusted.intervals) == LEARNING
