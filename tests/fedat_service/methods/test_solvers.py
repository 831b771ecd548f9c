import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import ManifestError, RuleError
from fedat_service.methods.exchanges import plan
from fedat_service.methods.solvers import HALVES, SlotState, learning, receive, settle, start
from fedat_service.params import Manifest, TensorSpec
from fedat_service.schedules.cycle import uniform
from fedat_service.schedules.fedals import fedals
from fedat_service.wire.settings import Solver

NETWORK = Manifest(
    (
        TensorSpec("phi.weight", (2, 2), "float32", "phi"),
        TensorSpec("phi.mean", (2,), "float32", "phi", trainable=False),
        TensorSpec("h.weight", (3,), "float32", "h"),
    )
)


def vector(size):
    """A model of one tensor."""
    return Manifest((TensorSpec("x", (size,), "float32", "x"),))


def close(half, solver, values, manifest, means, num_updates=2, num_clients=2):
    """Receive float64 means over a whole model, starting from float64 values."""
    state = SlotState({name: np.array(value, np.float64) for name, value in values.items()})
    arrays = {slot: np.array(mean, np.float64) for slot, mean in means.items()}
    return receive(half, solver, state, manifest, arrays, manifest, num_updates, num_clients).values


def quadratic(case, client, x):
    """The gradient of a golden case's client: a (x - b)."""
    return np.array(case["inputs"]["a"][client]) * (x - np.array(case["inputs"]["b"][client]))


# Golden cases: the clients' side is the case's numbers, or is replayed in a few lines.


@pytest.mark.parametrize("case_id", ["scaffold_optionI", "scaffold_optionII"])
def test_scaffold_moves_the_control_variate_as_in_the_golden_rounds(golden, case_id):
    case = golden(case_id)
    c, c_i = np.zeros(2), np.zeros((2, 2))
    for step in case["outputs"]["rounds"]:
        c_plus = np.array([client["c_plus"] for client in step["clients"]])
        dc = (c_plus - c_i).mean(axis=0)
        c = close(HALVES["scaffold"], Solver(), {"control": c}, vector(2), {"control": dc})["control"]
        c_i = c_plus
        assert c.tolist() == pytest.approx(step["c"], rel=case["rtol"])
        x = np.mean([client["y"][-1] for client in step["clients"]], axis=0)
        assert x.tolist() == pytest.approx(step["x"], rel=case["rtol"])


def test_scaffold_counts_the_absent_as_in_the_golden_case(golden):
    case = golden("scaffold_partial")
    inputs, outputs = case["inputs"], case["outputs"]
    (client,) = inputs["S"]
    dc = np.array(outputs["c_i"][client]) - np.array(inputs["c_i"][client])
    values, means = {"control": inputs["c"]}, {"control": dc}
    c = close(HALVES["scaffold"], Solver(), values, vector(2), means, 1, inputs["N"])["control"]
    assert c.tolist() == pytest.approx(outputs["c"], rel=case["rtol"])
    # The client's own steps, so that the case's numbers are known to come from this c and c_i.
    y, c_old, c_k = np.array(inputs["x0"]), np.array(inputs["c"]), np.array(inputs["c_i"][client])
    for _ in range(inputs["K"]):
        y = y - inputs["eta_l"] * (quadratic(case, client, y) - c_k + c_old)
    assert y.tolist() == pytest.approx(outputs["x"], rel=case["rtol"])


def test_parts_have_control_variates_of_their_own_as_in_the_golden_steps(golden):
    case = golden("fedals_scaffold")
    eta, alpha = case["inputs"]["eta"], case["inputs"]["alpha"]
    manifest = Manifest((TensorSpec("phi", (1,), "float32", "phi"), TensorSpec("h", (1,), "float32", "h")))
    half, cycle = HALVES["scaffold"], fedals(manifest, ["phi", "h"], alpha, {"h"})
    state = SlotState({"control": np.zeros(2)})
    x, c, last = np.zeros((2, 2)), np.zeros((2, 2)), np.zeros(2)
    steps = iter(case["outputs"]["steps"])
    for round_index in range(1, case["inputs"]["T"] // alpha + 1):
        for exchange in plan(half, cycle, manifest, round_index):
            for k in range(2):
                x[k] -= eta * (quadratic(case, k, x[k]) - c[k] + state.values["control"])
            due = Manifest(tuple(t for t in manifest.tensors if t.name in exchange.up["control"]))
            part = [manifest.spans[t.name].start for t in due.tensors]
            interval = np.array([cycle.intervals[t.name] for t in due.tensors])
            moved = (last[part] - x[:, part]) / (eta * interval)
            dc = moved - state.values["control"][part]
            c[:, part] += dc
            state = receive(half, Solver(), state, manifest, {"control": dc.mean(axis=0)}, due, 2, 2)
            x[:, part] = last[part] = x[:, part].mean(axis=0)
            step = next(steps)
            assert x.tolist() == [pytest.approx(row, rel=case["rtol"]) for row in step["x"]]
            assert c.tolist() == [pytest.approx(row, rel=case["rtol"]) for row in step["c"]]
            # What the server keeps is the mean of all clients' variates, part by part.
            assert state.values["control"] == pytest.approx(c.mean(axis=0), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("case_id", "name"),
    [
        ("fed_lamb_two_rounds", "fedlamb"),
        ("fed_lamb_wd_two_rounds", "fedlamb"),
        ("fed_ams_two_rounds", "fedams"),
    ],
)
def test_second_moments_grow_as_in_the_golden_rounds(golden, case_id, name):
    case = golden(case_id)
    solver, half = Solver(eps=case["inputs"]["eps"]), HALVES[name]
    values = start(half, solver, vector(3)).values
    assert values["second_moment"].tolist() == np.full(3, solver.eps, np.float32).tolist()
    values = {"second_moment": np.full(3, solver.eps)}
    for step in case["outputs"]["rounds"]:
        ends = [trace[-1] for trace in step["clients"].values()]
        means = {"second_moment": np.mean([end["v"] for end in ends], axis=0)}
        values = close(half, solver, values, vector(3), means)
        assert values["second_moment"].tolist() == pytest.approx(step["vhat"], rel=case["rtol"])
        theta = np.mean([end["theta"] for end in ends], axis=0)
        assert theta.tolist() == pytest.approx(step["theta"], rel=case["rtol"])


@pytest.mark.parametrize("name", ["mimelamb", "mimeams"])
def test_second_moments_follow_the_golden_mean_gradient(golden, name):
    case = golden("mime_lamb_two_rounds")
    inputs = case["inputs"]
    solver, half = Solver(eps=inputs["eps"], beta2=inputs["beta2"]), HALVES[name]
    values = {"mean_square": np.zeros(3), "second_moment": np.full(3, solver.eps)}
    assert set(start(half, solver, vector(3)).values) == set(values)
    for step in case["outputs"]["rounds"]:
        means = {"gradient": np.mean(list(inputs["full_grads"].values()), axis=0)}
        values = close(half, solver, values, vector(3), means)
        assert values["mean_square"].tolist() == pytest.approx(step["v"], rel=case["rtol"])
        assert values["second_moment"].tolist() == pytest.approx(step["vhat"], rel=case["rtol"])


def test_mime_gathers_the_golden_gradient_and_then_moves_its_momentum(golden):
    case = golden("mime_sgdm_round")
    inputs, outputs = case["inputs"], case["outputs"]
    solver, half, x = Solver(momentum=inputs["beta"]), HALVES["mime"], np.array(inputs["x"])
    gradients = [quadratic(case, k, x) for k in range(2)]
    values = {"control": np.zeros(2), "momentum": np.array(inputs["m"])}
    state = SlotState(close(half, solver, values, vector(2), {"gradient": np.mean(gradients, axis=0)}))
    assert state.values["control"].tolist() == pytest.approx(outputs["c"], rel=case["rtol"])
    assert state.values["momentum"].tolist() == inputs["m"]
    ends = []
    for k, trace in enumerate(outputs["y"]):
        y = x
        for expected in trace:
            corrected = quadratic(case, k, y) - gradients[k] + state.values["control"]
            beta = inputs["beta"]
            y = y - inputs["eta"] * (beta * state.values["momentum"] + (1 - beta) * corrected)
            assert y.tolist() == pytest.approx(expected, rel=case["rtol"])
        ends.append(y)
    assert np.mean(ends, axis=0).tolist() == pytest.approx(outputs["x_new"], rel=case["rtol"])
    momentum = settle(half, solver, state, [state]).values["momentum"]
    assert momentum.tolist() == pytest.approx(outputs["m_new"], rel=case["rtol"])


def test_second_moments_travel_in_the_golden_rounds_only(golden):
    case = golden("fedlamb_skip_sync")
    inputs, half = case["inputs"], HALVES["fedlamb"]
    values = {"second_moment": np.array(inputs["vhat0"])}
    manifest, elements = vector(2), []
    for round_index, mean in enumerate(inputs["mean_v"], 1):
        (exchange,) = plan(half, uniform(["x"]), manifest, round_index, inputs["Z"])
        elements.append(len(exchange.up))
        if "second_moment" in exchange.up:
            values = close(half, Solver(), values, manifest, {"second_moment": mean})
        assert values["second_moment"].tolist() == pytest.approx(
            case["outputs"]["vhat"][round_index - 1], rel=case["rtol"]
        )
    assert elements == case["outputs"]["elements_up_per_param"]


# Laws and refusals of the server's own vectors.


def test_vectors_are_over_what_learns_and_start_as_the_solver_says():
    solver = Solver(eps=1e-6)
    state = start(HALVES["mimelamb"], solver, NETWORK)
    assert state.values["second_moment"].tolist() == [np.float32(1e-6)] * 7
    assert state.values["mean_square"].tolist() == [0.0] * 7
    assert learning(NETWORK).num_floats == 7


def test_parts_that_are_not_due_keep_their_values():
    half, state = HALVES["scaffold"], start(HALVES["scaffold"], Solver(), NETWORK)
    due = Manifest(NETWORK.tensors[2:])
    after = receive(half, Solver(), state, NETWORK, {"control": np.ones(3, np.float32)}, due, 1, 4)
    assert after.values["control"].tolist() == [0, 0, 0, 0, 0.25, 0.25, 0.25]
    assert state.values["control"].tolist() == [0] * 7


@given(st.lists(st.floats(0, 10, width=32), min_size=7, max_size=7), st.sampled_from(["fedams", "fedlamb"]))
def test_second_moments_never_fall(mean, name):
    state = start(HALVES[name], Solver(eps=1.0), NETWORK)
    means = {"second_moment": np.array(mean, np.float32)}
    after = receive(HALVES[name], Solver(), state, NETWORK, means, learning(NETWORK), 1, 1)
    assert (after.values["second_moment"] >= state.values["second_moment"]).all()


@given(st.integers(1, 5), st.integers(0, 5))
def test_the_control_variate_is_the_mean_over_all_clients(num_updates, absent):
    num_clients = num_updates + absent
    rng = np.random.default_rng(num_clients)
    c_i = rng.standard_normal((num_clients, 7))
    dc = rng.standard_normal((num_updates, 7))
    values = {"control": c_i.mean(axis=0)}
    means = {"control": dc.mean(axis=0)}
    half, whole = HALVES["scaffold"], learning(NETWORK)
    c = close(half, Solver(), values, whole, means, num_updates, num_clients)["control"]
    c_i[:num_updates] += dc
    assert c == pytest.approx(c_i.mean(axis=0), rel=1e-9, abs=1e-12)


def test_only_mime_makes_something_of_its_vectors_when_a_round_is_over():
    for name in set(HALVES) - {"mime"}:
        state = start(HALVES[name], Solver(), NETWORK)
        assert settle(HALVES[name], Solver(), state, [state]) is state


@pytest.mark.parametrize(
    ("name", "means"),
    [("sgd", {}), ("sgd", {"control": 7}), ("scaffold", {"gradient": 7}), ("fedlamb", {})],
)
def test_slots_that_the_solver_does_not_send_are_refused(name, means):
    state = start(HALVES[name], Solver(), NETWORK)
    arrays = {slot: np.zeros(size, np.float32) for slot, size in means.items()}
    with pytest.raises(RuleError, match=f"solver {name} sends slots"):
        receive(HALVES[name], Solver(), state, NETWORK, arrays, learning(NETWORK), 1, 1)


def test_means_that_do_not_fit_are_refused():
    half, state = HALVES["scaffold"], start(HALVES["scaffold"], Solver(), NETWORK)
    means = {"control": np.zeros(6, np.float32)}
    with pytest.raises(ManifestError, match=r"slot 'control' has 7 values, got \[6\]"):
        receive(half, Solver(), state, NETWORK, means, learning(NETWORK), 1, 1)
    buffers = Manifest(NETWORK.tensors[1:2])
    with pytest.raises(ManifestError, match=r"no tensor 'phi\.mean'"):
        receive(half, Solver(), state, NETWORK, {"control": np.zeros(2)}, buffers, 1, 1)


@pytest.mark.parametrize(("num_updates", "num_clients"), [(0, 3), (4, 3)])
def test_counts_that_cannot_be_are_refused(num_updates, num_clients):
    half, state = HALVES["scaffold"], start(HALVES["scaffold"], Solver(), NETWORK)
    means = {"control": np.zeros(7, np.float32)}
    with pytest.raises(RuleError, match=f"{num_updates} updates of {num_clients} clients"):
        receive(half, Solver(), state, NETWORK, means, learning(NETWORK), num_updates, num_clients)
