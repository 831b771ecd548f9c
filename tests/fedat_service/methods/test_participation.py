import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.asynchronous import REPLACE, Blend
from fedat_service.aggregation.mixing import tier_weights
from fedat_service.methods.participation import rule_for
from fedat_service.wire.settings import Participation

NAMES = ("fedavg", "tifl", "fedasync", "fedbuff", "fedat")


def rule(name, **fields):
    return rule_for(Participation(name=name, **fields))


@pytest.mark.parametrize("name", NAMES)
def test_every_participation_setting_has_its_rule(name):
    assert rule(name).name == name


@pytest.mark.parametrize("asked", [1, 5, 256])
@pytest.mark.parametrize(("name", "tiered"), [*((n, n in ("tifl", "fedat")) for n in NAMES)])
def test_only_tiered_values_train_the_tiers_they_are_asked_for(name, tiered, asked):
    assert rule(name).num_tiers(asked) == (asked if tiered else 1)


@pytest.mark.parametrize(("name", "solo"), [*((n, n in ("fedasync", "fedbuff")) for n in NAMES)])
def test_as_many_clients_are_at_work_whether_together_or_each_alone(name, solo):
    one = rule(name)
    assert (one.round_size(7), one.rounds_at_once(7)) == ((1, 7) if solo else (7, 1))


@pytest.mark.parametrize("name", ["fedavg", "tifl", "fedat"])
@given(num_examples=st.integers(1, 10**6), age=st.integers(0, 100))
def test_in_a_round_examples_count_and_age_does_not(name, num_examples, age):
    assert rule(name).weight(num_examples, age) == num_examples
    assert rule(name, weighting="uniform").weight(num_examples, age) == 1
    assert rule(name).blend(9, [9 - min(age, 9)] * 3) == REPLACE


@pytest.mark.parametrize(
    ("fields", "s"),
    [
        ({"staleness": "constant"}, 1.0),
        ({"staleness": "hinge"}, 1.0),
        ({"staleness": "hinge", "hinge_a": 2, "hinge_b": 1}, 1 / 5),
        ({}, 1 / 2),
        ({"poly_a": 1.0}, 1 / 4),
    ],
)
def test_the_staleness_setting_is_what_counts(fields, s):
    asynchronous, buffered = rule("fedasync", alpha=0.5, **fields), rule("fedbuff", buffer_size=1, **fields)
    assert asynchronous.blend(8, [5]) == Blend(0.5 * s, 1 - 0.5 * s)
    assert buffered.blend(8, [5]) == Blend(s, 1.0, ((5, -s),))
    assert buffered.weight(99, 3) == s


def test_only_fedbuff_gathers():
    assert rule("fedbuff", buffer_size=3).buffer_size == 3
    assert {rule(name).buffer_size for name in NAMES if name != "fedbuff"} == {1}


def test_tiers_that_never_wait_for_each_other_report_in_the_golden_order(golden):
    case = golden("fedat_event_schedule")
    latencies = case["inputs"]["latencies"]
    counts = [0] * rule("fedat").num_tiers(len(latencies))
    open_rounds = [(latency, tier) for tier, latency in enumerate(latencies, start=1)]
    events = []
    while open_rounds[0][0] <= case["inputs"]["horizon"]:
        time, tier = open_rounds[0]
        heapq.heapreplace(open_rounds, (time + latencies[tier - 1], tier))
        counts[tier - 1] += 1
        events.append({"time": time, "tier": tier, "counts": counts.copy()})
        slowest_first = [count / sum(counts) for count in reversed(counts)]
        assert tier_weights(counts).tolist() == slowest_first
    assert events == case["outputs"]["events"]
