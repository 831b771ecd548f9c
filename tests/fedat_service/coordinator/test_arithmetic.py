"""A federation with its arrays: the log and the updates alone give the same models, bit for bit."""

import json

import numpy as np
import pytest

from fedat_service.coordinator.arithmetic import Arithmetic
from fedat_service.errors import Gone
from fedat_service.federation.effects import AddUpdate, DropRound, MakeVersion
from fedat_service.federation.events import (
    ClientRegistered,
    ClientReturned,
    DeadlinePassed,
    TaskDelivered,
    UpdateAccepted,
    VersionPublished,
    from_record,
    to_record,
)
from fedat_service.federation.spec import Spec
from fedat_service.federation.state import initial_state, next_deadline_s, versions_in_use
from fedat_service.federation.transition import transition
from fedat_service.params import Model, initial_model, to_params
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.differences import update_entries
from fedat_service.wire.messages import CreateFederation, ManifestMessage, TensorMessage

TENSORS = (
    TensorMessage(name="fc.weight", shape=(8, 5)),
    TensorMessage(name="norm.running_var", shape=(5,), trainable=False),
    TensorMessage(name="norm.count", shape=(), dtype="int64"),
)
NAMES = [f"c{i}" for i in range(8)]


PARTICIPATIONS = [
    {"name": "fedavg"},
    {"name": "fedat"},
    {"name": "tifl"},
    {"name": "fedasync", "staleness": "hinge"},
    {"name": "fedbuff", "buffer_size": 4},
]


def named(fields):
    return fields["name"]


def spec_of(participation, codec, server=None):
    message = {
        "name": "f",
        "manifest": ManifestMessage(tensors=TENSORS).model_dump(),
        "method": {"participation": participation, "codec": codec, "server": server or {"name": "average"}},
        "tiering": {"num_tiers": 2},
        "rounds": {"cohort_size": 3, "start_clients": len(NAMES), "deadline_s": 60.0},
    }
    return Spec.of(CreateFederation.model_validate(message))


class Federation:
    """The fold and its arrays, without service."""

    def __init__(self, spec):
        self.spec, self.state = spec, initial_state(spec)
        self.arrays = Arithmetic(spec, initial_model(spec.manifest, 0))
        self.log, self.models = [], []

    def apply(self, event, update=None):
        self.state, effects = transition(self.state, event)
        self.log.append((event, update))
        for effect in effects:
            match effect:
                case AddUpdate():
                    self.arrays.add(effect, update)
                case DropRound():
                    self.arrays.drop(effect)
                case MakeVersion():
                    self.models.append(self.arrays.make_version(effect).model)
        if isinstance(event, VersionPublished):
            self.arrays.keep_only(versions_in_use(self.state))

    def kept(self):
        """Versions whose models are there."""
        found = set()
        for number in range(self.state.version + 1):
            try:
                self.arrays.version(number, self.state.version)
            except Gone:
                continue
            found.add(number)
        return found


def history(spec, seed):
    """Clients of different pace, some of which miss a deadline and return."""
    rng = np.random.default_rng(seed)
    one, now_s = Federation(spec), 0.0
    for name in NAMES:
        one.apply(ClientRegistered(0.0, name, 20))
    for _ in range(150):
        now_s += float(rng.uniform(0, 4))
        if (due_s := next_deadline_s(one.state)) is not None and due_s <= now_s:
            one.apply(DeadlinePassed(now_s))
        client = one.state.clients[NAMES[int(rng.choice(8, p=np.arange(1, 9) / 36))]]
        if client.lost:
            one.apply(ClientReturned(now_s, client.name))
        elif client.lease is not None:
            if client.lease.delivered_at_s is None:
                one.apply(TaskDelivered(now_s, str(client.lease.task)))
            update = update_of(one, rng, client.lease.base_version)
            one.apply(UpdateAccepted(now_s, str(client.lease.task), int(rng.integers(1, 21)), "d"), update)
        while one.state.published < one.state.version:
            digest = one.models[one.state.published].digest()
            one.apply(VersionPublished(now_s, one.state.published + 1, digest))
    return one


def update_of(one, rng, base_version):
    """What a client might send: values off every grid, a positive variance, a counter."""
    spec = one.spec
    values = rng.standard_normal(spec.manifest.num_floats).astype(np.float32)
    values[spec.manifest.spans["norm.running_var"]] = rng.uniform(0, 1, 5)
    model = Model(values, rng.integers(0, 1000, 1))
    sent, codec = one.arrays.version(base_version, one.state.version).model, make_codec(spec.method.codec)
    base = Model(codec.decode(codec.encode(sent.floats), sent.floats.size), sent.integers)
    update, start = (to_params(one, spec.manifest) for one in (model, base))
    entries = update_entries(update, start, spec.manifest.tensors, spec.method.codec, rng)
    return Bundle(federation="f", base_version=base_version, num_examples=1, entries=entries)


CODECS = [
    {"name": "float32"},
    {"name": "polyline", "precision": 3},
    {"name": "polyline", "reference": "base"},
    {"name": "qsgd", "levels": 4},
    {"name": "qsgd", "directions": "both"},
    {"name": "affine8", "directions": "both"},
]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("server", [{"name": "average"}, {"name": "fedyogi", "lr": 0.01}], ids=named)
@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=named)
def test_the_log_alone_gives_the_same_models(participation, codec, server):
    spec = spec_of(participation, codec, server)
    one = history(spec, seed=1)
    assert one.state.version > 5
    again = Federation(spec)
    for event, update in one.log:
        again.apply(from_record(json.loads(json.dumps(to_record(event)))), update)
    assert again.state == one.state
    assert [model.digest() for model in again.models] == [model.digest() for model in one.models]
    published = [event.digest for event, _ in one.log if isinstance(event, VersionPublished)]
    assert published == [model.digest() for model in again.models]


@pytest.mark.parametrize("codec", [{"name": "float32"}, {"name": "qsgd"}, {"name": "affine8"}], ids=named)
@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=named)
def test_fedcom_with_rate_1_is_the_average_bit_for_bit(participation, codec):
    average = history(spec_of(participation, codec), seed=4)
    rate_1 = history(spec_of(participation, codec, {"name": "server_lr"}), seed=4)
    assert average.state.version > 5
    assert [one.digest() for one in rate_1.models] == [one.digest() for one in average.models]


@pytest.mark.parametrize("server", [{"name": "average"}, {"name": "server_lr", "gamma": 2.0}], ids=named)
@pytest.mark.parametrize("participation", PARTICIPATIONS, ids=named)
def test_differences_on_the_grid_make_the_same_models_bit_for_bit(participation, server):
    absolute, based = (
        history(spec_of(participation, {"name": "polyline", "reference": reference}, server), seed=5)
        for reference in ("absolute", "base")
    )
    ways = {entry.reference for _, update in based.log if update for entry in update.entries}
    assert ways == {"absolute", "base"}
    assert [one.digest() for one in based.models] == [one.digest() for one in absolute.models]


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_models_are_kept_for_as_long_as_somebody_works_from_them(name):
    one = history(spec_of({"name": name}, {"name": "float32"}), seed=2)
    assert one.state.version > 3
    assert one.kept() == versions_in_use(one.state)
    assert len(one.kept()) <= one.spec.rounds_at_once + one.spec.rule.buffer_size


@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_a_variance_never_falls_below_0(name):
    one = history(spec_of({"name": name}, {"name": "float32"}), seed=3)
    span = one.spec.manifest.spans["norm.running_var"]
    assert min(model.floats[span].min() for model in one.models) >= 0
