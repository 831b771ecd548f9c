"""Federations of a model with batch norm whose statistics stay with the clients."""

from collections import Counter

import numpy as np
import pytest

from fedat_service.params import initial_model, to_params
from fedat_service.wire.codecs import make_codec
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.simulation import simulate
from workers.client import ModelCache
from workers.training.jobs import InlineExecutor

LOCAL = {"buffers": "local"}
METHODS = {
    "fedals": {"schedule": {"name": "fedals", "alpha": 2, **LOCAL}},
    "fedat": {"schedule": LOCAL},
    "fedasync": {"schedule": LOCAL},
}
NUM_CLIENTS = 4


@pytest.fixture(scope="module", params=METHODS)
def run(request, tmp_path_factory):
    """A run, and the last version that it published."""
    newest = {}

    async def watch(client, finished):
        await finished.wait()
        view = await client.view()
        manifest = view.manifest.to_manifest()
        models = ModelCache(view.name, manifest, InlineExecutor())
        found = await client.fetch_newest(models, make_codec(view.method.codec))
        newest.update(version=found.version, params=found.params)

    name = request.param
    settings = ExperimentSettings(
        out=tmp_path_factory.mktemp(name),
        methods=(name,),
        method={name: METHODS[name]},
        reference=name,
        model="resnet20-lama",
        limit_per_class=2,
        num_clients=NUM_CLIENTS,
        num_tiers=2,
        cohort_size=2,
        num_unstable=0,
        latency="none",
        compute_s=5.0,
        horizon_s=32.0,
        evaluate_every_s=32.0,
        epochs=1,
        lr=0.001,
    )
    return simulate(name, settings, watch, "inline"), newest


def test_the_published_statistics_are_the_initial_ones_and_what_learns_is_not(run):
    made, newest = run
    manifest = made.federation.manifest.to_manifest()
    initial = to_params(initial_model(manifest, made.federation.seed), manifest)
    assert newest["version"] >= 2
    changed = {name for name, array in newest["params"].items() if not np.array_equal(array, initial[name])}
    learning = {tensor.name for tensor in manifest.tensors if tensor.trainable}
    assert changed == learning


def test_no_update_carries_statistics_and_clients_fetch_them_once_at_most(run):
    made, _ = run
    sizes, counted = {True: Counter(), False: Counter()}, {"up": Counter(), "down": Counter()}
    for tensor in made.federation.manifest.to_manifest().tensors:
        sizes[tensor.trainable][tensor.layer] += tensor.size
    for count in made.metrics.by_layer:
        assert count.slot == "weights"
        if count.tier > 0:
            counted[count.direction][count.layer] += count.parameters
    times = {way: counted[way]["conv"] / sizes[True]["conv"] for way in counted}
    for layer in sizes[False]:
        assert counted["up"][layer] == times["up"] * sizes[True][layer]
        statistics = counted["down"][layer] - times["down"] * sizes[True][layer]
        # With the whole model that they begin with.
        assert statistics / sizes[False][layer] in range(1, NUM_CLIENTS + 1)
    assert min(times.values()) > NUM_CLIENTS
