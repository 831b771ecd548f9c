"""How far updates lie apart, as the service decodes them; and what it makes of that."""

import numpy as np
import pytest

from fedat_service.coordinator.arithmetic import Arithmetic
from fedat_service.coordinator.gathering import Gathering
from fedat_service.federation.effects import AddUpdate, MakeVersion
from fedat_service.federation.spec import Spec
from fedat_service.params import Model, to_params
from fedat_service.schedules.cycle import Cycle
from fedat_service.wire.bundle import Bundle
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.differences import update_entries
from fedat_service.wire.messages import CreateFederation, ManifestMessage, TensorMessage

MANIFEST = ManifestMessage(
    tensors=(TensorMessage(name="one.weight", shape=(40, 5)), TensorMessage(name="two.weight", shape=(40, 5)))
)
NO_INTEGERS = np.empty(0, np.int64)


def spec_of(**codec):
    schedule = {"name": "fedlama", "phi": 2, "warmup_blocks": 0, "rule": "text"}
    method = {"participation": {"name": "fedavg"}, "schedule": schedule, "codec": codec}
    return Spec.of(
        CreateFederation.model_validate({"name": "f", "manifest": MANIFEST.model_dump(), "method": method})
    )


def model(values):
    return Model(np.asarray(values, np.float32), NO_INTEGERS)


def update(spec, base, values):
    manifest, rng = spec.manifest, np.random.default_rng(1)
    sent, start = (to_params(one, manifest) for one in (model(values), base))
    entries = update_entries(sent, start, manifest.tensors, spec.method.codec, rng)
    return Bundle(federation="f", base_version=0, num_examples=1, entries=entries)


CODECS = [
    {"name": "float32"},
    {"name": "float16"},
    {"name": "polyline", "precision": 4},
    {"name": "polyline", "precision": 3, "reference": "absolute"},
    {"name": "qsgd", "levels": 4},
    {"name": "affine8"},
]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("weights", [(1.0,), (0.37,), (12.0, 7.0), (0.1, 0.7, 0.3)], ids=str)
def test_clients_that_send_the_same_have_no_discrepancy_at_all(codec, weights):
    spec, rng = spec_of(**codec), np.random.default_rng(0)
    began, ends = (rng.standard_normal(spec.manifest.num_floats) for _ in range(2))
    travels = make_codec(spec.method.codec)
    base = model(travels.decode(travels.encode(np.asarray(began, np.float32)), began.size))
    gathering, sent = Gathering(spec, base), update(spec, base, began + 0.01 * ends)
    for weight in weights:
        gathering.add(sent, weight, base)
    assert gathering.discrepancies({"one.weight": 1, "two.weight": 1}) == {"one.weight": 0, "two.weight": 0}


def test_what_drifts_as_far_in_a_longer_interval_drifts_less():
    """FedLAMA, eq. 2: the discrepancy is per local step since a tensor's last sync."""
    spec = spec_of(name="float32")
    began = model(np.zeros(spec.manifest.num_floats))
    arrays = Arithmetic(spec, began)
    for way in (1.0, -1.0):
        arrays.add(AddUpdate(1, 1.0, 1), update(spec, began, np.full(spec.manifest.num_floats, way)))
    cycle = Cycle(2, {"one.weight": 1, "two.weight": 2})
    made = MakeVersion(1, 1, (1.0,), (1,), 2, 2, 2, (1,), cycle)
    assert arrays.make_version(made).intervals == (1, 2)
