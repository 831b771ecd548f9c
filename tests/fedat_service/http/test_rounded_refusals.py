"""Updates that are not the rounded differences that were asked for."""

import struct

import numpy as np
import pytest

from fedat_service.wire.affine import Affine8
from fedat_service.wire.qsgd import Qsgd


def with_payload(payload):
    """An update whose weights have these bytes."""
    return lambda two: two.changed(0, payload=payload)


def grid(scale=1.0, mean=0.0):
    """Two places on a grid."""
    return struct.pack("<ffbbb", scale, mean, 0, 5, -5)


OF_ANY = {
    "values": (
        lambda two: two.values([2, 1], base_version=0, num_examples=10), "fc.weight", "came as float32"
    ),
    "reference": (
        lambda two: two.changed(0, reference="absolute"), "entries[0].reference", "has reference 'base'"
    ),
    "differences of statistics": (
        lambda two: two.changed(1, reference="base"), "entries[1].reference", "has reference 'absolute'"
    ),
}  # fmt: skip
OF_QSGD = {
    "other levels": (
        lambda two: two.update([1, 1], [2, 1], levels=3), "fc.weight", "takes qsgd, levels 2, reference base"
    ),
    "another rounding": (
        lambda two: two.changed(0, codec=Affine8(), payload=grid()), "fc.weight",
        "came as affine8, reference base, the federation takes qsgd"
    ),
    "rounded statistics": (
        lambda two: two.changed(1, codec=Qsgd(2), reference="base", payload=bytes(6)), "norm.var",
        "takes float32"
    ),
    "too few bytes": (with_payload(bytes(4)), "entries[0].nbytes", "takes 5 to 5 bytes"),
    "too many bytes": (with_payload(bytes(6)), "entries[0].nbytes", "takes 5 to 5 bytes"),
    "no norm": (with_payload(struct.pack("<fx", np.nan)), "fc.weight", "a norm must be"),
    "a level too high": (with_payload(struct.pack("<fB", 1, 0x60)), "fc.weight", "no place in 2 levels"),
}  # fmt: skip
OF_AFFINE8 = {
    "another rounding": (
        lambda two: two.changed(0, codec=Qsgd(2), payload=bytes(5)), "fc.weight",
        "came as qsgd, levels 2, reference base, the federation takes affine8"
    ),
    "rounded statistics": (
        lambda two: two.changed(1, codec=Affine8(), reference="base", payload=grid() + b"\0"), "norm.var",
        "takes float32"
    ),
    "too few bytes": (with_payload(grid()[:-1]), "entries[0].nbytes", "takes 11 to 11 bytes"),
    "too many bytes": (with_payload(grid() + b"\0"), "entries[0].nbytes", "takes 11 to 11 bytes"),
    "no scale": (with_payload(grid(scale=0)), "fc.weight", "a scale must be"),
    "no mean": (with_payload(grid(mean=np.inf)), "fc.weight", "a mean must be"),
    "a grid too wide": (with_payload(grid(scale=1e37)), "fc.weight", "values must be from"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("two_weights", "wrong", "field", "reason"),
    [
        pytest.param(codec, *case, id=f"{codec['name']}: {name}")
        for codec, own in (({"name": "qsgd", "levels": 2}, OF_QSGD), ({"name": "affine8"}, OF_AFFINE8))
        for name, case in (OF_ANY | own).items()
    ],
    indirect=["two_weights"],
)
async def test_an_update_that_is_not_what_was_asked_for_is_refused_by_name(two_weights, wrong, field, reason):
    (task,) = await two_weights.start([1.0, 1.0], "a")
    answer = await two_weights.service.put(task, wrong(two_weights))
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert reason in answer.json()["detail"]
    await two_weights.put(task, two_weights.update([1, 1], [2, 1]))


async def test_an_update_from_another_base_is_refused(two_weights):
    (task,) = await two_weights.start([1.0, 1.0], "a")
    body = two_weights.update([1, 1], [2, 1], version=1)
    assert (await two_weights.service.put(task, body)).status_code == 412
