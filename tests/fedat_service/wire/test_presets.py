import pytest

from fedat_service.errors import Unprocessable
from fedat_service.wire.presets import PRESETS, resolve
from fedat_service.wire.settings import Method, Solver


def test_fedat_is_the_papers_row():
    method = PRESETS["fedat"]
    assert method.participation.name == "fedat"
    assert (method.solver.name, method.solver.epochs, method.solver.batch_size) == ("adam", 3, 10)
    assert method.solver.prox_mu == 0.4
    assert (method.codec.name, method.codec.precision, method.codec.layout) == ("polyline", 4, "pairs")


def test_fedavg_sends_plain_floats_and_has_no_proximal_term():
    method = PRESETS["fedavg"]
    assert (method.participation.name, method.codec.name, method.solver.prox_mu) == ("fedavg", "float32", 0.0)


def test_fedprox_is_fedavg_with_a_proximal_term():
    fedprox = PRESETS["fedprox"].model_dump()
    assert fedprox["solver"].pop("prox_mu") == 0.001
    fedavg = PRESETS["fedavg"].model_dump()
    del fedavg["solver"]["prox_mu"]
    assert fedprox == fedavg


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_name_stands_for_its_preset(name):
    assert resolve(name) == PRESETS[name]


@pytest.mark.parametrize(("name", "prox_mu"), [("tifl", 0.0), ("fedasync", 0.005), ("fedbuff", 0.0)])
def test_other_participations_do_the_local_work_of_fedavg(name, prox_mu):
    method = PRESETS[name].model_dump()
    assert method["participation"]["name"] == name
    assert method["solver"].pop("prox_mu") == prox_mu
    fedavg = PRESETS["fedavg"].model_dump()
    del fedavg["solver"]["prox_mu"]
    assert {**method, "participation": None} == {**fedavg, "participation": None}


def rows_that_differ(name, other):
    """The axes and settings that a preset has otherwise than another one."""
    ours, theirs = PRESETS[name].model_dump(), PRESETS[other].model_dump()
    return {
        f"{axis}.{field}": value
        for axis, settings in ours.items()
        for field, value in settings.items()
        if value != theirs[axis][field]
    }


def test_fedadam_is_fedavg_of_equal_clients_with_a_server_that_adapts(golden):
    differing = rows_that_differ("fedadam", "fedavg")
    # Its second moment starts as in the golden case, its rate and the others are those of it, too.
    inputs = golden("fedadam_v0_tau2")["inputs"]
    assert differing == {"participation.weighting": "uniform", "server.name": "fedadam", "server.v0": 1e-6}
    server = PRESETS["fedadam"].server
    assert (server.lr, server.beta1, server.beta2, server.tau, server.v0) == tuple(
        inputs[name] for name in ("eta", "beta1", "beta2", "tau", "v0")
    )


def test_fedpaq_is_fedavg_of_equal_clients_with_quantised_updates():
    differing = rows_that_differ("fedpaq", "fedavg")
    assert differing == {"participation.weighting": "uniform", "codec.name": "qsgd"}
    assert PRESETS["fedpaq"].codec.levels == 16


def test_fedcom_is_fedpaq_with_a_server_rate():
    assert rows_that_differ("fedcom", "fedpaq") == {"server.name": "server_lr", "server.gamma": 2.0}


def test_a_method_stands_for_itself():
    method = Method(solver=Solver(name="sgd", lr=0.05))
    assert resolve(method) is method


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(
        Unprocessable, match="no method 'fedsgd'; there are fedadam, fedasync, fedat, fedavg"
    ) as refusal:
        resolve("fedsgd")
    assert refusal.value.field == "method"


def test_presets_cannot_be_changed():
    with pytest.raises(TypeError):
        PRESETS["fedat"] = Method()
