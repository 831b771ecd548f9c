"""Whole federations of every schedule and solver, in virtual time: what travels, and that a replay agrees."""

from collections import Counter

import pytest

from fedat_service.coordinator.replay import replay
from fedat_service.federation.events import SyncClosed, VersionPublished
from fedat_service.methods.travel import travel
from fedat_service.store.jsonl import Created, read_log
from fedat_service.wire.presets import PRESETS
from loadtest.experiments.results import MethodRun
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.simulation import simulate

pytestmark = pytest.mark.no_cover  # other tests reach the same lines in less time

SCAFFOLD = {"name": "scaffold", "lr": 0.05}
FEDALS = {"name": "fedals", "alpha": 3}
FEDLAMA = {"name": "fedlama", "phi": 2, "warmup_blocks": 2}
BASE = {"name": "polyline", "reference": "base"}
BOTH = {"name": "qsgd", "directions": "both"}
AFFINE = {"name": "affine8", "directions": "both"}
METHODS = {
    "fedals": {"preset": "fedavg", "schedule": FEDALS},
    "fedlama": {"preset": "fedavg", "schedule": FEDLAMA},
    "fedasync-fedals": {"preset": "fedasync", "schedule": FEDALS},
    "fedpaq-both-fedals": {"preset": "fedpaq", "schedule": FEDALS, "codec": BOTH},
    "fedcom-affine8-both-fedlama": {"preset": "fedcom", "schedule": FEDLAMA, "codec": AFFINE},
    "fedat-base-fedlama": {"preset": "fedat", "schedule": FEDLAMA, "codec": BASE},
    "fedasync-base-fedals": {"preset": "fedasync", "schedule": FEDALS, "codec": BASE},
    "fedadam-fedals": {"preset": "fedadam", "schedule": FEDALS},
    "local-momentum": {"preset": "fedavg", "solver": {"name": "momentum", "lr": 0.01, "reset": "never"}},
    "fedbuff-scaffold": {"preset": "fedbuff", "solver": SCAFFOLD, "participation": {"buffer_size": 3}},
    "fedlamb": {"preset": "fedavg", "solver": {"name": "fedlamb", "lr": 0.01, "moment_every": 2}},
    "fedat-mime": {"preset": "fedat", "solver": {"name": "mime", "lr": 0.05, "prox_mu": 0.0}},
}
SENT = {
    "fedbuff-scaffold": {"control"},
    "fedlamb": {"second_moment"},
    "fedat-mime": {"gradient"},
}


@pytest.fixture
def run(tmp_path):
    async def watch(_client, finished):
        await finished.wait()

    def simulated(name, method, **settings) -> MethodRun:
        small = ExperimentSettings(
            out=tmp_path,
            methods=(name,),
            method={name: method},
            reference=name,
            keep_updates=True,
            **{
                "model": "mlp",
                "limit_per_class": 20,
                "num_clients": 10,
                "num_tiers": 2,
                "cohort_size": 3,
                "num_unstable": 2,
                "horizon_s": 400.0,
                "evaluate_every_s": 200.0,
                "epochs": 1,
                **settings,
            },
        )
        return simulate(name, small, watch, "inline")

    return simulated


def events_of(folder):
    return [entry.event for entry in read_log(folder / "events.jsonl") if not isinstance(entry, Created)]


def digests_of(folder):
    return [event.digest for event in events_of(folder) if isinstance(event, VersionPublished)]


def by_slot(run, direction="up"):
    counts = Counter()
    for count in run.metrics.by_layer:
        if count.direction == direction and count.tier > 0:
            counts[count.slot] += count.parameters
    return counts


@pytest.mark.parametrize("name", METHODS)
def test_every_row_runs_and_its_versions_come_out_of_its_log_again(run, tmp_path, name):
    made = run(name, METHODS[name])
    assert made.federation.version >= 1
    (replayed,) = replay(tmp_path / "events.jsonl", verify=True)
    assert replayed.differing == []
    assert replayed.verified == list(range(1, made.federation.version + 1))
    assert set(by_slot(made)) == {"weights"} | SENT.get(name, set())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_by_its_name_and_sends_what_it_lists(run, tmp_path, name):
    made = run(name, {}, latency="none", compute_s=5.0, num_unstable=0, horizon_s=130.0)
    assert made.federation.version >= 2
    (replayed,) = replay(tmp_path / "events.jsonl", verify=True)
    assert replayed.differing == []
    assert len(replayed.verified) == made.federation.version
    listed = travel(PRESETS[name].method, made.federation.manifest.to_manifest())
    assert set(by_slot(made)) == set(listed.up)
    assert set(by_slot(made, "down")) == set(listed.down)


def test_a_combination_runs_under_its_own_name(run, tmp_path):
    made = run("fedals+scaffold", {"schedule": FEDALS})
    assert (made.name, made.federation.name) == ("fedals+scaffold", "fedals-scaffold")
    assert set(by_slot(made)) == {"weights", "control"}
    assert events_of(tmp_path)


def test_the_body_travels_once_a_round_and_the_head_at_every_sync(run):
    made = run("fedals", METHODS["fedals"], num_unstable=0)
    sizes = {t.layer: 0 for t in made.federation.manifest.to_manifest().tensors}
    for tensor in made.federation.manifest.to_manifest().tensors:
        sizes[tensor.layer] += tensor.size
    sent = {c.layer: c.parameters / sizes[c.layer] for c in made.metrics.by_layer if c.direction == "up"}
    *body, head = sizes
    # Rounds in progress at the end have sent heads whose bodies never came.
    times = sent[body[0]]
    assert all(sent[layer] == times for layer in body)
    assert 3 * times <= sent[head] < 3 * (times + 3)


SGD = {"name": "sgd", "lr": 0.05}
EVERYBODY = {"cohort_size": 10, "num_tiers": 1, "num_unstable": 0}
SAME = {
    "fedlama with phi 1 and fedavg": (
        {"preset": "fedavg", "schedule": {"name": "fedlama", "phi": 1}},
        {"preset": "fedavg"},
        {},
    ),
    "fedat of one tier without its proximal term and fedavg of everybody": (
        {"preset": "fedat", "solver": {"prox_mu": 0.0}, "codec": {"name": "float32"}},
        {"preset": "fedavg", "codec": {"name": "float32"}},
        EVERYBODY,
    ),
    "fedcom with server rate 1 and fedpaq": (
        {"preset": "fedcom", "server": {"gamma": 1.0}},
        {"preset": "fedpaq"},
        {},
    ),
    "fedals with alpha 1 and fedavg": (
        {"preset": "fedavg", "schedule": {"name": "fedals", "alpha": 1}},
        {"preset": "fedavg"},
        {},
    ),
}


@pytest.mark.parametrize("pair", SAME)
def test_two_methods_are_one_bit_for_bit(run, tmp_path, pair):
    one, other, settings = SAME[pair]
    digests = []
    for method in (one, other):
        run("same", method, horizon_s=200.0, **settings)
        digests.append(digests_of(tmp_path))
    # Tiers take the time to profile their clients first, so that there may be fewer versions.
    common = min(map(len, digests))
    assert common >= 2
    assert digests[0][:common] == digests[1][:common]


def test_scaffold_with_zero_variates_is_fedavg_bit_for_bit(run, tmp_path):
    """In the first round, that is: after it the variates are what drift they saw."""
    digests = []
    for solver in (SCAFFOLD, SGD):
        run("same", {"preset": "fedavg", "solver": solver}, horizon_s=200.0)
        digests.append(digests_of(tmp_path))
    assert digests[0][0] == digests[1][0]
    assert digests[0][1] != digests[1][1]


def test_what_fedlama_finds_changes_when_tensors_travel(run, tmp_path):
    run("fedlama", METHODS["fedlama"] | {"schedule": {"name": "fedlama", "phi": 2, "warmup_blocks": 0}})
    events = events_of(tmp_path)
    intervals = [set(e.intervals) for e in events if isinstance(e, VersionPublished)]
    assert intervals
    assert all(found <= {1, 2} for found in intervals)
    assert {1, 2} in intervals
    assert any(isinstance(e, SyncClosed) for e in events)
