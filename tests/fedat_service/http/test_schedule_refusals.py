"""What a schedule or a solver did not ask for is refused by name, and changes nothing."""

import pytest

from fedat_service.params import Manifest
from fedat_service.wire.bundle import Bundle, encode_bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.entries import model_entries

METHOD = {
    "participation": {"name": "fedavg"},
    "schedule": {"name": "fedals", "alpha": 2, "head": ["fc"]},
    "solver": {"name": "scaffold", "lr": 0.1},
    "codec": {"name": "float32"},
}
FC, CONV = ("fc.weight",), ("conv.weight", "conv.bias")
DUE = {"weights": FC, "control": FC}
"""What the first of two syncs asks for."""

# slots and their tensors, part of `field`, reason
BUNDLES = {
    "a tensor that is not due": (DUE | {"weights": (*CONV, *FC)}, "conv.weight", "is not due"),
    "a buffer that is not due": (DUE | {"weights": ("norm.count", *FC)}, "norm.count", "is not due"),
    "without a tensor that is due": ({"control": FC}, "fc.weight", "tensor 'fc.weight' is due and missing"),
    "another tensor than the due one": ({**DUE, "weights": CONV[:1]}, "fc.weight", "is due and missing"),
    "without a slot that is due": ({"weights": FC}, "fc.weight", "control of tensor 'fc.weight' is due"),
    "a slot of a tensor that is not due": (
        DUE | {"control": (*CONV, *FC)},
        "conv.weight",
        "control of tensor 'conv.weight' is not due",
    ),
    "a slot of another solver": (
        DUE | {"second_moment": FC},
        "fc.weight",
        "second_moment of tensor 'fc.weight' is not due",
    ),
    "another solver's slot in the place of its own": (
        {"weights": FC, "momentum": FC},
        "fc.weight",
        "control of tensor 'fc.weight' is due and missing",
    ),
    "nothing": ({}, "fc.weight", "is due and missing"),
}


def body_of(service, slots, **fields):
    """An update of these tensors, by slot."""
    manifest: Manifest = service.manifest
    entries = tuple(
        entry
        for slot, names in slots.items()
        for entry in model_entries(service.some_model(), manifest, manifest.named(names), Float32(), slot)
    )
    header = {"federation": "f", "base_version": 0, "num_examples": 10, **fields}
    return encode_bundle(Bundle(entries=entries, **header))


@pytest.mark.parametrize("case", BUNDLES)
async def test_a_bundle_of_other_tensors_or_slots_is_refused_by_name(service, case):
    slots, field, reason = BUNDLES[case]
    (task,) = await service.started("a", method=METHOD)
    before = service.coordinator.state
    answer = await service.put(task, body_of(service, slots))
    problem = answer.json()
    assert (answer.status_code, problem["field"]) == (422, field), problem
    assert reason in problem["detail"]
    assert service.coordinator.state == before
    assert (await service.put(task, body_of(service, DUE))).status_code == 201


async def test_a_base_that_the_task_did_not_start_from_is_refused(service):
    (task,) = await service.started("a", method=METHOD)
    answer = await service.put(task, body_of(service, DUE, base_version=3))
    assert (answer.status_code, answer.json()["field"]) == (412, "base_version")


async def test_the_last_sync_asks_for_everything(service):
    (task,) = await service.started("a", method=METHOD)
    await service.put(task, body_of(service, DUE))
    second = (await service.task("a")).json()
    answer = await service.put(second["task"], body_of(service, DUE))
    assert (answer.status_code, answer.json()["field"]) == (422, "conv.weight")
    everything = {"weights": (*CONV, "norm.count", *FC), "control": (*CONV, *FC)}
    assert second["up"] == {slot: list(names) for slot, names in everything.items()}
    assert (await service.put(second["task"], body_of(service, everything))).status_code == 201


BUFFER = {"tensors": [{"name": "norm.mean", "shape": [4], "trainable": False}]}
ONE_LAYER = {"tensors": [{"name": "fc.weight", "shape": [3, 4]}, {"name": "fc.bias", "shape": [3]}]}

# schedule, other fields, `field`, reason
SCHEDULES = {
    "a pattern that matches nothing": (
        {"head": ["fc", "nose*"]},
        {},
        "method.schedule",
        "head pattern 'nose*' matches no layer of conv, norm, fc",
    ),
    "a pattern in other letters": ({"head": ["FC"]}, {}, "method.schedule", "head pattern 'FC' matches no"),
    "a pattern that matches everything": (
        {"head": ["*"]},
        {},
        "method.schedule",
        "head pattern '*' leaves no",
    ),
    "no pattern": ({"head": []}, {}, "method.schedule.head", "at least 1 item"),
    "a head of no layer": ({"head": 0}, {}, "method.schedule.head", "greater than or equal to 1"),
    "a head of all layers": ({"head": 2}, {}, "method.schedule", "no head of 2"),
    "a head by another name": ({"head": "top"}, {}, "method.schedule.head", "'classifier'"),
    "no rest beside the head": ({}, {"manifest": ONE_LAYER}, "method.schedule", "two layers that learn"),
    "nothing that travels": (
        {"name": "full", "buffers": "local"},
        {"manifest": BUFFER},
        "method.schedule",
        "at least one tensor",
    ),
    "no interval": ({"alpha": 0}, {}, "method.schedule.alpha", "greater than or equal to 1"),
    "another schedule's interval": ({"phi": 4}, {}, "method.schedule.phi", "phi belongs to fedlama"),
}


@pytest.mark.parametrize("case", SCHEDULES)
async def test_a_schedule_that_does_not_fit_its_model_is_refused_by_name(service, case):
    schedule, fields, field, reason = SCHEDULES[case]
    method = {"participation": {"name": "fedavg"}, "schedule": {"name": "fedals", **schedule}}
    answer = await service.create(method=method, **fields)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert reason in answer.json()["detail"]
    assert (await service.get("")).status_code == 404


@pytest.mark.parametrize("solver", ["scaffold", "fedams", "fedlamb", "mime", "mimelamb", "mimeams"])
async def test_a_solver_that_sends_more_than_weights_needs_tensors_that_learn(service, solver):
    method = {"participation": {"name": "fedavg"}, "solver": {"name": solver}}
    answer = await service.create(method=method, manifest=BUFFER)
    assert (answer.status_code, answer.json()["field"]) == (422, "manifest")
    assert f"solver {solver} needs tensors that learn" in answer.json()["detail"]
    assert (await service.create(method="fedavg", manifest=BUFFER)).status_code == 201


async def test_an_unknown_method_is_refused_with_the_names_that_there_are(service):
    answer = await service.create(method="fedat+fedsgd")
    assert (answer.status_code, answer.json()["field"]) == (422, "method")
    assert "no method 'fedat+fedsgd'; there are adp-fed, fedadam" in answer.json()["detail"]
