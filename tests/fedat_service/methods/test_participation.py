import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.methods.participation import RULES, rule_for
from fedat_service.wire.settings import Participation


@pytest.mark.parametrize("name", ["fedavg", "fedat"])
def test_every_participation_setting_has_its_rule(name):
    assert rule_for(Participation(name=name)).name == name


@pytest.mark.parametrize("asked", [1, 5, 256])
def test_fedavg_trains_one_tier_whatever_is_asked(asked):
    assert RULES["fedavg"].num_tiers(asked) == 1


@pytest.mark.parametrize("asked", [1, 5, 256])
def test_fedat_trains_the_tiers_it_is_asked_for(asked):
    assert RULES["fedat"].num_tiers(asked) == asked


@given(st.integers(0, 2**60), st.sampled_from(["literal", "smoothed", "reported"]), st.booleans())
def test_the_one_tier_of_fedavg_is_the_global_model(updates, cold_start, parked):
    assert RULES["fedavg"].weights([updates], cold_start, [parked]).tolist() == [1.0]


def test_fedat_passes_cold_start_and_parked_tiers_on():
    weights = RULES["fedat"].weights
    assert weights([3, 1, 0], "literal", [False] * 3).tolist() == [0, 0.25, 0.75]
    assert weights([3, 1, 0], "reported", [False] * 3).tolist() == [0.25, 0.75, 0]
    assert weights([3, 1, 0], "smoothed", [False, True, False]).tolist() == [0.2, 0, 0.8]


def test_tiers_that_never_wait_for_each_other_report_in_the_golden_order(golden):
    case = golden("fedat_event_schedule")
    latencies = case["inputs"]["latencies"]
    rule = RULES["fedat"]
    counts = [0] * rule.num_tiers(len(latencies))
    open_rounds = [(latency, tier) for tier, latency in enumerate(latencies, start=1)]
    events = []
    while open_rounds[0][0] <= case["inputs"]["horizon"]:
        time, tier = open_rounds[0]
        heapq.heapreplace(open_rounds, (time + latencies[tier - 1], tier))
        counts[tier - 1] += 1
        events.append({"time": time, "tier": tier, "counts": counts.copy()})
        slowest_first = [count / sum(counts) for count in reversed(counts)]
        assert rule.weights(counts, "literal", None).tolist() == slowest_first
    assert events == case["outputs"]["events"]
