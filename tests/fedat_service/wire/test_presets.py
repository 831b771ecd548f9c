import re

import pytest
from pydantic import ValidationError

from fedat_service.errors import Unprocessable
from fedat_service.wire.messages import CreateFederation
from fedat_service.wire.presets import PRESETS, resolve
from fedat_service.wire.settings import Method, Solver


def test_fedat_is_the_papers_row():
    method = PRESETS["fedat"].method
    assert method.participation.name == "fedat"
    assert (method.solver.name, method.solver.epochs, method.solver.batch_size) == ("adam", 3, 10)
    assert method.solver.prox_mu == 0.4
    assert (method.codec.name, method.codec.precision, method.codec.layout) == ("polyline", 4, "pairs")


def test_fedavg_sends_plain_floats_and_has_no_proximal_term():
    method = PRESETS["fedavg"].method
    assert (method.participation.name, method.codec.name, method.solver.prox_mu) == ("fedavg", "float32", 0.0)


def test_fedprox_is_fedavg_with_a_proximal_term():
    fedprox = PRESETS["fedprox"].method.model_dump()
    assert fedprox["solver"].pop("prox_mu") == 0.001
    fedavg = PRESETS["fedavg"].method.model_dump()
    del fedavg["solver"]["prox_mu"]
    assert fedprox == fedavg


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_name_stands_for_its_preset(name):
    assert resolve(name) == PRESETS[name].method


@pytest.mark.parametrize(("name", "prox_mu"), [("tifl", 0.0), ("fedasync", 0.005), ("fedbuff", 0.0)])
def test_other_participations_do_the_local_work_of_fedavg(name, prox_mu):
    method = PRESETS[name].method.model_dump()
    assert method["participation"]["name"] == name
    assert method["solver"].pop("prox_mu") == prox_mu
    fedavg = PRESETS["fedavg"].method.model_dump()
    del fedavg["solver"]["prox_mu"]
    assert {**method, "participation": None} == {**fedavg, "participation": None}


def rows_that_differ(name, other):
    """The axes and settings that a preset has otherwise than another one."""
    ours, theirs = PRESETS[name].method.model_dump(), PRESETS[other].method.model_dump()
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
    server = PRESETS["fedadam"].method.server
    assert (server.lr, server.beta1, server.beta2, server.tau, server.v0) == tuple(
        inputs[name] for name in ("eta", "beta1", "beta2", "tau", "v0")
    )


def test_fedpaq_is_fedavg_of_equal_clients_with_quantised_updates():
    differing = rows_that_differ("fedpaq", "fedavg")
    assert differing == {"participation.weighting": "uniform", "codec.name": "qsgd"}
    assert PRESETS["fedpaq"].method.codec.levels == 16


def test_fedcom_is_fedpaq_with_a_server_rate():
    assert rows_that_differ("fedcom", "fedpaq") == {"server.name": "server_lr", "server.gamma": 2.0}


FEDALS = {"schedule.name": "fedals"}
FEDLAMA = {"schedule.name": "fedlama"}


@pytest.mark.parametrize(
    ("name", "other", "differing"),
    [
        ("fedat+fedlama", "fedat", FEDLAMA),
        ("fedat+fedals", "fedat", FEDALS | {"solver.steps": 5}),
        ("fedals+scaffold", "scaffold", FEDALS),
        ("fedprox+fedlama", "fedlama", {"solver.prox_mu": 0.001}),
        ("fedpaq+fedlama", "fedlama", {"codec.name": "qsgd"}),
        ("fedams", "fedlamb", {"solver.name": "fedams", "solver.lr": 1e-3}),
        ("mimelamb", "fedlamb", {"solver.name": "mimelamb"}),
        ("mime-ams", "mimelamb", {"solver.name": "mimeams", "solver.lr": 1e-3}),
    ],
)
def test_a_combination_differs_from_its_parts_in_what_it_adds(name, other, differing):
    assert rows_that_differ(name, other) == differing


def test_fedlama_and_fedals_train_with_a_momentum_that_is_kept():
    lama, als = PRESETS["fedlama"].method, PRESETS["fedals"].method
    for method in (lama, als):
        assert (method.solver.name, method.solver.momentum, method.solver.reset) == ("momentum", 0.9, "never")
        assert (method.solver.weight_decay, method.participation.weighting) == (1e-4, "uniform")
    assert (lama.solver.steps, lama.solver.batch_size, lama.schedule.phi) == (10, 32, 2)
    assert (als.solver.steps, als.solver.batch_size) == (5, 64)
    assert (als.schedule.alpha, als.schedule.head) == (10, "classifier")


def test_adp_fed_is_fedadam_over_sgd_with_fed_lambs_betas():
    method = PRESETS["adp-fed"].method
    assert (method.solver.name, method.solver.epochs, method.solver.batch_size) == ("sgd", 1, 128)
    assert (method.server.name, method.server.beta1, method.server.beta2) == ("fedadam", 0.9, 0.999)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_federation_is_created_by_any_presets_name(name):
    message = {"name": "f", "method": name, "manifest": {"tensors": [{"name": "a.weight", "shape": [2, 3]}]}}
    assert CreateFederation.model_validate(message).method == name


def test_a_federation_cannot_be_called_as_two_methods_are():
    message = {"name": "fedat+fedals", "manifest": {"tensors": [{"name": "a.weight", "shape": [2, 3]}]}}
    with pytest.raises(ValidationError, match="name"):
        CreateFederation.model_validate(message)


def test_every_preset_names_a_paper():
    assert all(re.search(r"\(.+\)", preset.paper) for preset in PRESETS.values())


def test_a_method_stands_for_itself():
    method = Method(solver=Solver(name="sgd", lr=0.05))
    assert resolve(method) is method


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(
        Unprocessable, match="no method 'fedsgd'; there are adp-fed, fedadam, fedals, "
    ) as refusal:
        resolve("fedsgd")
    assert refusal.value.field == "method"


def test_presets_cannot_be_changed():
    with pytest.raises(TypeError):
        PRESETS["fedat"] = PRESETS["fedavg"]
