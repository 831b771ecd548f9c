"""Which bundles are the initial model of a federation, and which are not."""

from dataclasses import replace

import pytest

from fedat_service.wire.codecs import Float32
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import BUNDLE_TYPE


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"federation": "other"}, "federation", "the bundle is for federation 'other'"),
        ({"version": 4}, "version", "an initial model is version 0, got 4"),
        ({"version": None, "base_version": 0}, "version", "an initial model is version 0, got None"),
        ({"more": "control"}, "conv.weight", "control of tensor 'conv.weight' is no part of a model"),
    ],
)
async def test_what_is_no_initial_model_of_this_federation_is_refused(service, fields, field, reason):
    await service.create(initial_model="upload")
    whole = model_entries(service.some_model(), service.manifest, service.manifest.tensors, Float32())
    more = [replace(entry, slot=fields["more"]) for entry in whole[:1]] if "more" in fields else []
    header = {"version": 0, "base_version": None, "num_examples": None, "entries": (*whole, *more)}
    header |= {name: value for name, value in fields.items() if name != "more"}
    answer = await service.http.put(
        "/v1/federations/f/model", content=service.update(**header), headers={"Content-Type": BUNDLE_TYPE}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert reason in answer.json()["detail"]
    assert (await service.get("")).json()["status"] == "awaiting-model"
