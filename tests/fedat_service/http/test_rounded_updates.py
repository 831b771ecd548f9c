"""Rounded differences go up, as FedPAQ, FedCOM and FedCOMGATE send them, and are averaged."""

import struct

import numpy as np
import pytest

from fedat_service.wire import affine
from fedat_service.wire.affine import Affine8
from fedat_service.wire.qsgd import Qsgd

QSGD, AFFINE = {"name": "qsgd", "levels": 2}, {"name": "affine8"}
by_qsgd = pytest.mark.parametrize("two_weights", [QSGD], ids=["qsgd"], indirect=True)
by_affine8 = pytest.mark.parametrize("two_weights", [AFFINE], ids=["affine8"], indirect=True)


def by_each(name, of_qsgd, of_affine8):
    """Both codecs, with a value for each."""
    cases = [(QSGD, of_qsgd), (AFFINE, of_affine8)]
    ids = ["qsgd", "affine8"]
    return pytest.mark.parametrize(("two_weights", name), cases, ids=ids, indirect=["two_weights"])


@by_qsgd
@pytest.mark.parametrize(
    ("case_id", "server", "directions", "result"),
    [
        ("fedpaq_server", {"name": "average"}, "up", "x"),
        # Its mean is on the levels of its own norm: whatever number is drawn, it stays there.
        ("fedpaq_bidirectional", {"name": "average"}, "both", "x"),
        ("fedcom_server", {"name": "server_lr", "gamma": 2.0}, "up", "w"),
    ],
)
async def test_a_federation_takes_the_golden_step(two_weights, golden, case_id, server, directions, result):
    inputs, outputs = golden(case_id)["inputs"], golden(case_id)["outputs"]
    x = inputs.get("x") or inputs["w"]
    tasks = await two_weights.start(x, "a", "b", server=server, directions=directions)
    for task, delta, u in zip(tasks, inputs["deltas"], inputs["u"], strict=True):
        await two_weights.put(task, two_weights.update(x, np.array(x) + delta, u))
    assert (await two_weights.newest())[0] == pytest.approx(outputs[result], rel=1e-6)


@by_affine8
@pytest.mark.parametrize("directions", ["up", "both"])
async def test_a_federation_takes_the_mean_step_and_rounds_it_again_for_both_directions(
    two_weights, directions
):
    start, steps = np.array([1.0, -1.0]), np.array([[1.0, -2.0], [0.0, -0.5]], np.float32)
    tasks = await two_weights.start(start, "a", "b", directions=directions)
    for task, step in zip(tasks, steps, strict=True):
        await two_weights.put(task, two_weights.update(start, start + step))
    rounded = [affine.dequantise(*affine.quantise(step)) for step in steps]
    mean = np.mean(rounded, axis=0)
    again = affine.dequantise(*affine.quantise(mean.astype(np.float32)))
    assert np.abs(again - mean).min() > 1e-3
    expected = start + (mean if directions == "up" else again)
    np.testing.assert_allclose((await two_weights.newest())[0], expected, rtol=1e-6)


async def test_what_does_not_learn_is_averaged_as_it_is(two_weights):
    tasks = await two_weights.start([1.0, 1.0], "a", "b")
    for task, others in zip(tasks, ([1.0, 0.5, 0.25], [2.0, 1.5, 0.75]), strict=True):
        await two_weights.put(task, two_weights.update([1, 1], [1, 1], others=others))
    assert await two_weights.newest() == [[1.0, 1.0], [1.5, 1.0, 0.5], [3]]


@by_each("off", of_qsgd=1e-6, of_affine8=1 / 255)
async def test_updates_of_different_bases_are_each_added_to_their_own(two_weights, off):
    (first, _) = await two_weights.start([1.0, 1.0], "a", "b", participation="fedasync")
    # alpha = 0.6 of a fresh update: 0.4 * 1 + 0.6 * 2
    await two_weights.put(first, two_weights.update([1, 1], [2, 1]))
    np.testing.assert_allclose((await two_weights.newest())[0], [1.6, 1.0], atol=off)
    second = (await two_weights.service.task("b")).json()
    assert second["base_version"] == 0
    await two_weights.put(second["task"], two_weights.update([1, 1], [1, 0]))
    # s(1) = 2 ** -0.5 of one that started from version 0, not from 1.6.
    a = 0.6 * 2**-0.5
    np.testing.assert_allclose((await two_weights.newest())[0], [1.6 * (1 - a) + a, 1 - a], atol=off)


# A norm and two times 3 bits; a scale, a mean, a zero point and two bytes.
@by_each("size", of_qsgd=4 + 1, of_affine8=9 + 2)
async def test_bytes_are_counted_as_they_are(two_weights, size):
    (task,) = await two_weights.start([1.0, 1.0], "a")
    await two_weights.service.get("/model", params={"task": task})
    await two_weights.put(task, two_weights.update([1, 1], [2, 1]))
    metrics = (await two_weights.service.get("/metrics")).json()
    volume = {
        (one["direction"], one["layer"]): one["payload"] for one in metrics["by_layer"] if one["tier"] == 1
    }
    assert volume == {("up", "fc"): size, ("up", "norm"): 20, ("down", "fc"): 8, ("down", "norm"): 20}


@by_each("sizes", of_qsgd=(1e30, 1e35), of_affine8=(2.1e37, 2.2e37))
async def test_a_model_that_no_difference_can_be_taken_to_is_no_initial_model(two_weights, sizes):
    await two_weights.create()
    within, beyond = sizes
    answer = await two_weights.put_model(two_weights.values([1.0, -beyond], version=0))
    assert (answer.status_code, answer.json()["field"]) == (422, "fc.weight")
    assert (await two_weights.put_model(two_weights.update([1, 1], [2, 1]))).status_code == 422
    assert (await two_weights.put_model(two_weights.values([1.0, -within], version=0))).status_code == 201


@by_each(
    "largest",
    of_qsgd=(struct.pack("<fB", 2.0**126, 0x40), Qsgd(2).largest),
    of_affine8=(struct.pack("<ffbbb", 2.0**118, 2.0**118, 0, 127, -1), Affine8().largest),
)
async def test_the_largest_steps_that_travel_leave_a_model_that_does(two_weights, largest):
    payload, bound = largest
    (task,) = await two_weights.start([1.0, 1.0], "a", server={"name": "server_lr", "gamma": 1000.0})
    await two_weights.put(task, two_weights.changed(0, payload=payload))
    assert (await two_weights.newest())[0] == [bound, pytest.approx(1.0)]


async def test_a_client_that_does_not_read_it_cannot_take_part(two_weights):
    await two_weights.start([1.0, 1.0], "a")
    client = {"name": "b", "num_examples": 10, "codecs": ["float32", "polyline"]}
    answer = await two_weights.service.http.post("/v1/federations/f/clients", json=client)
    assert (answer.status_code, answer.json()["field"]) == (422, "codecs")


async def test_a_client_that_names_no_codec_reads_all(two_weights):
    await two_weights.start([1.0, 1.0], "a")
    assert (await two_weights.service.register("b")).status_code == 201
