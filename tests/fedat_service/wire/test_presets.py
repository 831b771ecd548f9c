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


def test_a_method_stands_for_itself():
    method = Method(solver=Solver(name="sgd", lr=0.05))
    assert resolve(method) is method


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(
        Unprocessable, match="no method 'fedsgd'; there are fedasync, fedat, fedavg"
    ) as refusal:
        resolve("fedsgd")
    assert refusal.value.field == "method"


def test_presets_cannot_be_changed():
    with pytest.raises(TypeError):
        PRESETS["fedat"] = Method()
