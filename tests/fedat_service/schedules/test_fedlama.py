import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import RuleError
from fedat_service.params import Manifest, TensorSpec
from fedat_service.schedules.cycle import Cycle, uniform
from fedat_service.schedules.fedlama import adjusts, extended, fedlama

UNITS = st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**7), st.booleans()), min_size=1, max_size=12)


def leaf_cnn():
    """The network of FedLAMA's FEMNIST experiments."""
    shapes = {
        "conv1.weight": (32, 1, 5, 5),
        "conv1.bias": (32,),
        "conv2.weight": (64, 32, 5, 5),
        "conv2.bias": (64,),
        "fc1.weight": (2048, 3136),
        "fc1.bias": (2048,),
        "fc2.weight": (62, 2048),
        "fc2.bias": (62,),
    }
    return Manifest(
        tuple(TensorSpec(n, shape, "float32", n.rpartition(".")[0]) for n, shape in shapes.items())
    )


LEAF_CNN = leaf_cnn()
NAMES = tuple(t.name for t in LEAF_CNN.tensors)
LONG_FC1 = dict.fromkeys(NAMES, 1.0) | {"fc1.weight": 0.1}


@pytest.mark.parametrize(
    "case_id", ["fedlama_intervals", "fedlama_intervals_tie", "fedlama_intervals_one_dominant"]
)
@pytest.mark.parametrize("rule", ["text", "official"])
def test_the_golden_units_are_extended(golden, case_id, rule):
    case = golden(case_id)
    inputs = case["inputs"]
    long = extended(inputs["d"], inputs["dim"], [True] * len(inputs["d"]), rule)
    intervals = [inputs["tau_base"] * (inputs["phi"] if i in long else 1) for i in range(len(inputs["d"]))]
    assert intervals == case["outputs"][rule]


def test_units_are_taken_in_the_golden_order_and_not_by_the_misprint(golden):
    case = golden("fedlama_intervals")
    inputs = case["inputs"]
    long = extended(inputs["d"], inputs["dim"], [True] * 5)
    assert long == [step["layer"] for step in case["outputs"]["trace"]][: len(long)]
    misprint = [i for i, tau in enumerate(case["outputs"]["preprint_algorithm2"]) if tau > inputs["tau_base"]]
    assert sorted(long) != misprint


def test_only_kernels_are_extended_in_the_golden_network(golden):
    case = golden("fedlama_official_kernel_only")
    inputs = case["inputs"]
    assert [t.size for t in LEAF_CNN.tensors] == inputs["dims"]
    d = dict(zip(NAMES, inputs["d"], strict=True))
    cycle = fedlama(LEAF_CNN, NAMES, inputs["phi"], d)
    intervals = [inputs["tau_base"] * interval for interval in cycle.intervals.values()]
    assert intervals == case["outputs"]["intervals"]


@pytest.mark.parametrize(
    ("case_id", "warmup_blocks"),
    [
        ("fedlama_cost_femnist", 6),
        ("fedlama_cost_femnist_phi4", 6),
        ("fedlama_cost_femnist_nowarm", 0),
    ],
)
def test_a_run_of_the_femnist_network_costs_the_golden_share(golden, cost, case_id, warmup_blocks):
    case = golden(case_id)
    phi, blocks = case["inputs"]["phi"], case["inputs"]["blocks"]
    cycles = [uniform(NAMES, phi)]
    while len(cycles) * phi < blocks:
        adjusted = adjusts(len(cycles) * phi, warmup_blocks)
        cycles.append(fedlama(LEAF_CNN, NAMES, phi, LONG_FC1) if adjusted else cycles[-1])
    sent = cost(LEAF_CNN, cycles)
    whole = cost(LEAF_CNN, [uniform(NAMES)] * blocks)
    assert (sent, whole) == (case["outputs"]["C"], case["outputs"]["C_fedavg"])
    assert sent / whole == pytest.approx(case["outputs"]["ratio"], rel=case["rtol"])


@pytest.mark.parametrize(("phi", "percent"), [(2, 51.86), (4, 28.52)])
def test_without_warm_up_a_run_costs_what_the_paper_prints(cost, phi, percent):
    cycles = [uniform(NAMES, phi)] + [fedlama(LEAF_CNN, NAMES, phi, LONG_FC1)] * (200 // phi - 1)
    share = cost(LEAF_CNN, cycles) / cost(LEAF_CNN, [uniform(NAMES)] * 200)
    assert round(100 * share, 2) == percent


@pytest.mark.parametrize(
    ("blocks", "warmup_blocks", "first"),
    [(2, 6, False), (4, 6, False), (6, 6, False), (8, 6, True), (2, 0, True), (4, 0, True)],
)
def test_the_first_adjustment_comes_after_the_warm_up(blocks, warmup_blocks, first):
    assert adjusts(blocks, warmup_blocks) is first


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e6)), st.sampled_from(["official", "text"]))
def test_phi_1_is_fedavg(d, rule):
    assert fedlama(LEAF_CNN, NAMES, 1, dict.fromkeys(NAMES, 0.5) | d, rule) == uniform(NAMES)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e6)),
    st.sampled_from([2, 3, 8]),
    st.sampled_from(["kernel-tensor", "layer"]),
)
def test_the_cost_is_between_that_of_the_long_interval_and_that_of_the_short(cost, d, phi, unit):
    cycle = fedlama(LEAF_CNN, NAMES, phi, dict.fromkeys(NAMES, 0.5) | d, unit=unit)
    size = cost(LEAF_CNN, [uniform(NAMES)])
    assert size <= cost(LEAF_CNN, [cycle]) <= phi * size
    assert cycle.due(phi) == NAMES


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e6)))
def test_the_tensors_of_a_layer_stay_together_if_asked(d):
    cycle = fedlama(LEAF_CNN, NAMES, 2, dict.fromkeys(NAMES, 0.5) | d, unit="layer")
    for layer in LEAF_CNN.layers:
        assert cycle.intervals[f"{layer}.weight"] == cycle.intervals[f"{layer}.bias"]


def test_a_layers_discrepancy_is_that_of_all_its_elements():
    manifest = Manifest(
        (
            TensorSpec("a.weight", (2, 2), "float32", "a"),
            TensorSpec("a.bias", (12,), "float32", "a"),
            TensorSpec("a.mean", (99,), "float32", "a", trainable=False),
            TensorSpec("b.weight", (16,), "float32", "b"),
        )
    )
    names = [t.name for t in manifest.tensors]
    # Per element a drifts by (4 * 4 + 12 * 0) / 16 = 1, b by 2: a comes first and half the elements are its.
    d = {"a.weight": 4.0, "a.bias": 0.0, "b.weight": 2.0}
    expected = {"a.weight": 2, "a.bias": 2, "a.mean": 2, "b.weight": 1}
    assert fedlama(manifest, names, 2, d, "text", unit="layer") == Cycle(2, expected)


def test_buffers_and_vectors_keep_the_short_interval_per_tensor():
    manifest = Manifest(
        (
            TensorSpec("a.weight", (2, 2), "float32", "a"),
            TensorSpec("a.bias", (2,), "float32", "a"),
            TensorSpec("a.mean", (2, 2), "float32", "a", trainable=False),
        )
    )
    cycle = fedlama(manifest, ["a.weight", "a.bias", "a.mean"], 2, {"a.weight": 1.0, "a.bias": 0.0})
    assert cycle.intervals == {"a.weight": 2, "a.bias": 1, "a.mean": 1}


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=12),
    st.floats(1e-9, 1e6),
    st.sampled_from(["official", "text"]),
    st.sampled_from(["kernel-tensor", "layer"]),
)
def test_where_all_drift_alike_the_order_of_the_model_decides(sizes, d, rule, unit):
    parts = {"weight": 0} if unit == "kernel-tensor" else {"weight": 0, "bias": 3}
    manifest = Manifest(
        tuple(
            TensorSpec(f"l{i}.{part}", (size + more, 1), "float32", f"l{i}")
            for i, size in enumerate(sizes)
            for part, more in parts.items()
        )
    )
    names = [t.name for t in manifest.tensors]
    intervals = fedlama(manifest, names, 2, dict.fromkeys(names, d), rule, unit).intervals
    long = [intervals[f"l{i}.weight"] == 2 for i in range(len(sizes))]
    assert long == sorted(long, reverse=True)
    assert long[0] or rule == "text"


@given(UNITS)
def test_the_official_rule_also_extends_the_unit_at_the_crossing(units):
    d, dims, extendable = zip(*units, strict=True)
    text, official = extended(d, dims, extendable, "text"), extended(d, dims, extendable)
    assert official[: len(text)] == text
    assert all(extendable[i] for i in official)
    if any(d):
        assert len(official) >= min(len(text) + 1, sum(extendable))


@given(UNITS)
def test_what_is_extended_drifts_no_more_than_what_is_not(units):
    d, dims, extendable = zip(*units, strict=True)
    long = extended(d, dims, extendable)
    short = [i for i in range(len(d)) if extendable[i] and i not in long]
    assert max((d[i] for i in long), default=0) <= min((d[i] for i in short), default=math.inf)


@pytest.mark.parametrize("rule", ["official", "text"])
def test_where_nothing_drifts_nothing_is_extended(rule):
    assert extended([0.0, 0.0], [10, 10], [True, True], rule) == []
    assert extended([1.0, 1.0], [10, 10], [False, False], rule) == []


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_a_discrepancy_that_is_no_distance_is_refused(wrong):
    with pytest.raises(RuleError, match=f"got {wrong} of unit 1"):
        extended([1.0, wrong], [1, 1], [True, True])


@pytest.mark.parametrize("unit", ["kernel-tensor", "layer"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_a_tensor_whose_discrepancy_is_no_distance_is_named(wrong, unit):
    d = dict.fromkeys(NAMES, 1.0) | {"fc1.bias": wrong}
    with pytest.raises(RuleError, match=rf"tensor 'fc1\.bias'.* got {wrong}"):
        fedlama(LEAF_CNN, NAMES, 2, d, unit=unit)


def test_every_unit_needs_a_discrepancy():
    with pytest.raises(RuleError, match="got 1, 2, 2"):
        extended([1.0], [1, 1], [True, True])
    with pytest.raises(RuleError, match=r"tensor 'fc1\.bias' has no discrepancy"):
        fedlama(LEAF_CNN, NAMES, 2, {name: 1.0 for name in NAMES if name != "fc1.bias"})
