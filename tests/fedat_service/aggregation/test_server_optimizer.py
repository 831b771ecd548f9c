import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.server_optimizer import Adaptive, Moments, ServerRate, move
from fedat_service.errors import ManifestError, RuleError
from fedat_service.params import Manifest, Model, TensorSpec
from fedat_service.wire.qsgd import dequantise, quantise

VALUES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=5)
ADAPTIVE = ("fedadam", "fedyogi", "fedadagrad")
NO_MOMENTS = Moments(np.empty(0), np.empty(0))

NETWORK = Manifest(
    (
        TensorSpec("a.weight", (2,), "float32", "a"),
        TensorSpec("a.mean", (2,), "float32", "a", trainable=False),
        TensorSpec("a.count", (1,), "int64", "a", trainable=False),
        TensorSpec("b.weight", (3,), "float32", "b"),
    )
)


def part(*names):
    return Manifest(tuple(t for t in NETWORK.tensors if t.name in names))


def model(floats, integers=()):
    return Model(np.array(floats, np.float32), np.array(integers, np.int64))


@pytest.mark.parametrize("case_id", ["fedadam_v0_zero", "fedadam_v0_tau2"])
def test_fedadam_takes_the_golden_steps(golden, case_id):
    case = golden(case_id)
    inputs = case["inputs"]
    rule = Adaptive("fedadam", inputs["eta"], inputs["beta1"], inputs["beta2"], inputs["tau"], inputs["v0"])
    x = np.array(inputs["x0"])
    state = Moments(np.zeros(2), np.full(2, inputs["v0"]))
    for delta, step in zip(inputs["deltas"], case["outputs"]["rounds"], strict=True):
        # The rule is given a mean, and x + delta - x is delta up to the last bits of x.
        state, x = rule.step(state, x, x + np.array(delta))
        assert state.m.tolist() == pytest.approx(step["m"], rel=1e-12)
        assert state.v.tolist() == pytest.approx(step["v"], rel=1e-12)
        assert x.tolist() == pytest.approx(step["x"], rel=case["rtol"])


def test_fedyogi_and_fedadagrad_differ_in_the_second_moment_only():
    x, mean = np.zeros(2), np.array([2.0, 0.5])
    state = Moments(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    yogi, x_yogi = Adaptive("fedyogi", 0.1, 0.5, 0.75, 0.5).step(state, x, mean)
    # v - (1 - .75) D^2 sign(v - D^2) with D^2 = 4 and 1/4
    assert yogi.v.tolist() == [2.0, 0.9375]
    adagrad, x_adagrad = Adaptive("fedadagrad", 0.1, 0.5, 0.75, 0.5).step(state, x, mean)
    assert adagrad.v.tolist() == [5.0, 1.25]
    assert yogi.m.tolist() == adagrad.m.tolist() == [1.5, 0.75]
    assert x_yogi.tolist() == pytest.approx([0.15 / (2**0.5 + 0.5), 0.075 / (0.9375**0.5 + 0.5)])
    assert x_adagrad.tolist() == pytest.approx([0.15 / (5**0.5 + 0.5), 0.075 / (1.25**0.5 + 0.5)])


@given(VALUES, VALUES)
def test_rate_1_is_the_average_to_the_bit(x, mean):
    size = min(len(x), len(mean))
    target = np.array(mean[:size], np.float32)
    _, new = ServerRate(1.0).step(NO_MOMENTS, np.array(x[:size], np.float32), target)
    assert new.tobytes() == target.tobytes()


def test_fedcom_takes_the_golden_step(golden):
    case = golden("fedcom_server")
    w, eta = np.array(case["inputs"]["w"]), case["inputs"]["eta"]
    # FedCOM sends Q((w - w_i) / eta) and steps by eta gamma; a mean of models is w minus eta times that.
    means = []
    for delta, u in zip(case["inputs"]["deltas"], case["inputs"]["u"], strict=True):
        norm, signed = quantise(-np.array(delta) / eta, case["inputs"]["s"], np.array(u))
        means.append(w - eta * dequantise(norm, signed, case["inputs"]["s"]))
    _, new = ServerRate(case["inputs"]["gamma"]).step(NO_MOMENTS, w, np.mean(means, axis=0))
    assert new.tolist() == pytest.approx(case["outputs"]["w"], rel=case["rtol"])


def test_a_rate_goes_that_many_times_as_far():
    _, new = ServerRate(2.5).step(NO_MOMENTS, np.array([1.0, 2.0]), np.array([2.0, 0.0]))
    assert new.tolist() == [3.5, -3.0]


@given(VALUES, st.sampled_from([ServerRate(), ServerRate(0.3), *(Adaptive(r, 0.5) for r in ADAPTIVE)]))
def test_a_mean_equal_to_the_model_moves_nothing_at_the_start(x, rule):
    values = np.array(x, np.float32)
    _, new = rule.step(rule.start(values.size), values, values.copy())
    assert new.tolist() == x


@given(VALUES, VALUES, st.sampled_from(ADAPTIVE), st.integers(1, 4))
def test_steps_stay_finite_and_second_moments_positive(x, mean, name, rounds):
    size = min(len(x), len(mean))
    values, target = np.array(x[:size], np.float32), np.array(mean[:size], np.float32)
    rule = Adaptive(name, 0.1)
    state = rule.start(size)
    for _ in range(rounds):
        state, values = rule.step(state, values, target)
        assert np.isfinite(values).all()
        assert (state.v >= 0).all()


@pytest.mark.parametrize("rule", [ServerRate(1e3), *(Adaptive(r, 1e3, beta2=0.0) for r in ADAPTIVE)])
def test_nothing_becomes_infinite(rule):
    x, mean = np.full(1, -3e38, np.float32), np.full(1, 3e38, np.float32)
    state = rule.start(1)
    for _ in range(3):
        state, x = rule.step(state, x, mean)
        mean = -mean
        assert np.isfinite([*x, *state.m, *state.v]).all()


def test_nothing_given_is_written_to():
    x, mean, m, v = (np.full(2, value) for value in (1.0, 2.0, 0.1, 0.2))
    for array in (x, mean, m, v):
        array.setflags(write=False)
    for name in ADAPTIVE:
        Adaptive(name, 0.1).step(Moments(m, v), x, mean)
    ServerRate(0.5).step(NO_MOMENTS, x, mean)
    assert [a.tolist() for a in (x, mean, m, v)] == [[1.0, 1.0], [2.0, 2.0], [0.1, 0.1], [0.2, 0.2]]


@pytest.mark.parametrize("rule", [ServerRate(0.5), Adaptive("fedadam", 0.1)])
def test_only_what_learns_moves_by_the_rule(rule):
    current, mean = model([1, 1, 1, 1, 1, 1, 1], [3]), model([2, 2, 9, 9, 2, 2, 2], [5])
    state, new = move(rule, rule.start(7), current, NETWORK, mean, NETWORK)
    assert new.floats[2:4].tolist() == [9, 9]
    assert new.integers.tolist() == [5]
    assert (new.floats[[0, 1, 4, 5, 6]] != 1).all()
    assert (new.floats[[0, 1, 4, 5, 6]] != 2).all()
    assert state.m.size == 0 or state.m[2:4].tolist() == [0, 0]


@pytest.mark.parametrize("rule", [ServerRate(), ServerRate(0.5), *(Adaptive(r, 0.1) for r in ADAPTIVE)])
def test_what_is_not_due_stays_and_so_do_its_moments(rule):
    current = model([1, 2, 3, 4, 5, 6, 7], [3])
    state = rule.start(7)
    state = Moments(state.m + 1, state.v + 1)
    moved, new = move(rule, state, current, NETWORK, model([0, 0, 0]), part("b.weight"))
    assert new.floats[:4].tolist() == [1, 2, 3, 4]
    assert new.integers.tolist() == [3]
    assert (new.floats[4:] != current.floats[4:]).all()
    assert moved.m[:4].tolist() == state.m[:4].tolist()
    assert moved.v[:4].tolist() == state.v[:4].tolist()
    assert current.floats.tolist() == [1, 2, 3, 4, 5, 6, 7]


@given(st.lists(st.floats(-10, 10, width=32), min_size=5, max_size=5), st.sampled_from(ADAPTIVE))
def test_part_by_part_is_the_whole(mean, name):
    rule, current = Adaptive(name, 0.1, v0=1e-6), model([1, 2, 0, 0, 5, 6, 7], [0])
    whole, at_once = move(rule, rule.start(7), current, NETWORK, model(mean), part("a.weight", "b.weight"))
    state, new = move(rule, rule.start(7), current, NETWORK, model(mean[2:]), part("b.weight"))
    state, new = move(rule, state, new, NETWORK, model(mean[:2]), part("a.weight"))
    assert new.digest() == at_once.digest()
    assert state.m.tobytes() == whole.m.tobytes()
    assert state.v.tobytes() == whole.v.tobytes()


def test_what_does_not_fit_is_refused():
    current, rule = model([0] * 7, [0]), ServerRate()
    with pytest.raises(ManifestError, match="3 floats and 0 integers are expected, got 2 and 0"):
        move(rule, rule.start(7), current, NETWORK, model([0, 0]), part("b.weight"))
    with pytest.raises(ManifestError, match="7 floats and 1 integers are expected, got 7 and 0"):
        move(rule, rule.start(7), model([0] * 7), NETWORK, model([0] * 3), part("b.weight"))
    strange = Manifest((TensorSpec("c.weight", (1,), "float32", "c"),))
    with pytest.raises(ManifestError, match=r"no tensor 'c\.weight'"):
        move(rule, rule.start(7), current, NETWORK, model([0]), strange)


@pytest.mark.parametrize("gamma", [0, -1, float("nan")])
def test_a_rate_must_be_positive(gamma):
    with pytest.raises(RuleError, match="must be positive"):
        ServerRate(gamma)


@pytest.mark.parametrize(
    "numbers",
    [{"lr": 0}, {"lr": 1, "tau": 0}, {"lr": 1, "v0": -1}, {"lr": 1, "beta1": 1}, {"lr": 1, "beta2": -1}],
)
def test_adaptive_numbers_out_of_range_are_refused(numbers):
    with pytest.raises(RuleError, match="must be"):
        Adaptive("fedadam", **numbers)
