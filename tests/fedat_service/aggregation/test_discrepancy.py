import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.chunks import CHUNK
from fedat_service.aggregation.discrepancy import Drift
from fedat_service.aggregation.mean import RunningMean
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model, TensorSpec


def layers(**sizes):
    return Manifest(tuple(TensorSpec(name, (size,), "float32", name) for name, size in sizes.items()))


def measure(manifest, base, updates, weights, tau, scale=1.0):
    """Stream updates through; the discrepancies of all tensors."""
    mean, drift = RunningMean(manifest, scale), Drift(manifest, np.asarray(base, np.float32))
    for update, weight in zip(updates, weights, strict=True):
        floats = np.asarray(update, np.float32)
        mean.add(Model(floats, np.zeros(0, np.int64)), weight)
        for tensor in manifest.tensors:
            drift.add(tensor.name, floats[manifest.spans[tensor.name]], weight)
    return drift.discrepancies(mean, tau)


@pytest.mark.parametrize("base", [[0.0, 0.0], [2.0, 1.0], [-7.0, 100.0]])
def test_the_discrepancy_is_the_golden_one_wherever_clients_started(golden, base):
    case = golden("fedlama_discrepancy")
    updates, tau = case["inputs"]["layers"], case["inputs"]["tau_l"]
    d = measure(layers(a=2), base, updates, [1] * len(updates), {"a": tau})
    assert d["a"] == pytest.approx(case["outputs"]["d"], rel=case["rtol"])


@given(
    st.integers(1, 5),
    st.lists(st.integers(1, 100), min_size=1, max_size=6),
    st.sampled_from([1e-4, 1e-2, 1.0]),
    st.sampled_from([1.0, 1e4]),
    st.integers(0, 2**32),
)
def test_one_pass_is_what_two_passes_give(tau, weights, drift, scale, seed):
    rng = np.random.default_rng(seed)
    manifest = layers(a=3, b=5)
    base = rng.standard_normal(8).astype(np.float32)
    updates = (base + drift * rng.standard_normal((len(weights), 8))).astype(np.float32)
    d = measure(manifest, base, updates, weights, {"a": tau, "b": 2 * tau}, scale)
    u = np.average(updates.astype(np.float64), axis=0, weights=weights)
    squares = np.average((updates - u) ** 2, axis=0, weights=weights)
    expected = {"a": squares[:3].sum() / (tau * 3), "b": squares[3:].sum() / (2 * tau * 5)}
    assert d == pytest.approx(expected, rel=1e-9, abs=1e-12 * drift**2)


def test_clients_that_agree_have_no_discrepancy():
    update = np.random.default_rng(0).standard_normal(3 * CHUNK)
    d = measure(layers(a=update.size), np.zeros(update.size), [update] * 3, [1, 2, 3], {"a": 1})
    assert 0 <= d["a"] < 1e-12


def test_buffers_have_no_discrepancy():
    manifest = Manifest(
        (TensorSpec("a", (1,), "float32", "a"), TensorSpec("b", (1,), "float32", "b", trainable=False))
    )
    assert measure(manifest, [0, 0], [[1, 5], [3, 9]], [1, 1], {"a": 1}) == {"a": 1.0}


def test_a_tensor_of_no_elements_has_discrepancy_0():
    assert measure(layers(a=0, b=1), [0], [[1], [3]], [1, 1], {"a": 1, "b": 1}) == {"a": 0.0, "b": 1.0}


def test_a_base_of_another_size_is_refused():
    with pytest.raises(ManifestError, match=r"the base has 2 floats, got \[3\]"):
        Drift(layers(a=2), np.zeros(3, np.float32))


@pytest.mark.parametrize(("name", "size"), [("b", 2), ("a", 3)])
def test_a_tensor_that_is_not_of_the_sync_is_refused(name, size):
    drift = Drift(layers(a=2), np.zeros(2, np.float32))
    with pytest.raises(ManifestError, match=f"tensor '{name}' with \\[{size}\\] values"):
        drift.add(name, np.zeros(size, np.float32), 1)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_that_cannot_be_is_refused(weight):
    with pytest.raises(RuleError, match="positive and finite"):
        Drift(layers(a=1), np.zeros(1, np.float32)).add("a", np.zeros(1, np.float32), weight)


def test_a_discrepancy_needs_updates_of_this_sync_and_a_tau():
    manifest = layers(a=1)
    drift, mean = Drift(manifest, np.zeros(1, np.float32)), RunningMean(manifest)
    with pytest.raises(RuleError, match="without updates"):
        drift.discrepancies(mean, {"a": 1})
    mean.add(Model(np.ones(1, np.float32), np.zeros(0, np.int64)), 1)
    with pytest.raises(RuleError, match="tau must be at least 1, got 0"):
        drift.discrepancies(mean, {"a": 0})
    with pytest.raises(ManifestError, match="the mean has 2 floats, the base 1"):
        drift.discrepancies(RunningMean(layers(a=2)), {"a": 1})
