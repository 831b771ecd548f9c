import dataclasses
import json
import zlib

import numpy as np
import pytest

from fedat_service.errors import WireError
from fedat_service.params import Manifest, Model, TensorSpec, initial_model, to_params
from fedat_service.wire.bundle import (
    MAGIC,
    Bundle,
    check_bundle,
    decode_bundle,
    decode_model,
    describe,
    encode_bundle,
    max_bundle_bytes,
    parse_bundle,
)
from fedat_service.wire.codecs import Float16, Float32, Int64, Polyline
from fedat_service.wire.entries import model_entries

MANIFEST = Manifest(
    (
        TensorSpec("conv.weight", (3, 2, 2), "float32", "conv"),
        TensorSpec("conv.bias", (3,), "float32", "conv"),
        TensorSpec("norm.var", (3,), "float32", "norm", trainable=False),
        TensorSpec("norm.count", (), "int64", "norm", trainable=False),
        TensorSpec("empty", (0, 4), "float32", "empty"),
        TensorSpec("head.weight", (2, 3), "float32", "head"),
    )
)
CODECS = [Float32(), Float16(), Polyline(4, "pairs"), Polyline(6, "flat"), Polyline(3, "plain")]

every_codec = pytest.mark.parametrize("codec", CODECS, ids=str)


def model():
    drawn = initial_model(MANIFEST, seed=1)
    return Model(drawn.floats, np.asarray([2**40 + 1], np.int64))


def update(codec=CODECS[2], layers=MANIFEST.layers):
    entries = model_entries(model(), MANIFEST, MANIFEST.select(layers), codec)
    return Bundle(federation="mnist", entries=entries, base_version=7, num_examples=60)


def split(body):
    """The header as JSON members, and the payloads."""
    size = int.from_bytes(body[7:11], "little")
    return json.loads(body[11 : 11 + size]), body[11 + size :]


def join(members, payloads):
    text = json.dumps(members).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text + payloads


def refusal_of(body, manifest=MANIFEST):
    with pytest.raises(WireError) as refusal:
        check_bundle(parse_bundle(body, manifest))
    return refusal.value


@every_codec
def test_a_bundle_comes_back_from_its_bytes(codec):
    bundle = update(codec)
    parsed = parse_bundle(encode_bundle(bundle), MANIFEST)
    assert parsed == bundle
    assert encode_bundle(parsed) == encode_bundle(bundle)


@every_codec
def test_values_come_back_in_their_shapes(codec):
    parsed = parse_bundle(encode_bundle(update(codec)), MANIFEST)
    check_bundle(parsed)
    params = decode_bundle(parsed)["weights"]
    for name, expected in to_params(model(), MANIFEST).items():
        assert params[name].dtype == expected.dtype
        np.testing.assert_allclose(params[name], expected, rtol=0, atol=6e-4)
        assert params[name].shape == expected.shape


def test_integers_travel_raw_beside_any_codec():
    parsed = parse_bundle(encode_bundle(update()), MANIFEST)
    (entry,) = [e for e in parsed.entries if e.tensor.dtype == "int64"]
    assert entry.codec == Int64()
    assert decode_model(parsed, MANIFEST).integers.tolist() == [2**40 + 1]


def test_float32_keeps_every_bit():
    parsed = parse_bundle(encode_bundle(update(Float32())), MANIFEST)
    assert decode_model(parsed, MANIFEST).digest() == model().digest()


def test_the_frame_is_magic_length_header_payloads():
    body = encode_bundle(update(layers=["head"]))
    members, payloads = split(body)
    assert body.startswith(b"FEDAT1\n")
    payload = Polyline(4, "pairs").encode(model().floats[MANIFEST.spans["head.weight"]])
    assert payloads == payload
    assert members == {
        "federation": "mnist",
        "base_version": 7,
        "num_examples": 60,
        "entries": [
            {
                "slot": "weights",
                "layer": "head",
                "tensor": "head.weight",
                "shape": [2, 3],
                "codec": "polyline",
                "precision": 4,
                "layout": "pairs",
                "reference": "absolute",
                "nbytes": len(payload),
                "crc32": zlib.crc32(payload),
            }
        ],
    }


@pytest.mark.parametrize("layers", [[], ["norm"], ["head", "conv"], ["empty"]])
def test_any_set_of_layers_travels_in_manifest_order(layers):
    parsed = parse_bundle(encode_bundle(update(layers=layers)), MANIFEST)
    assert [e.tensor for e in parsed.entries] == [t for t in MANIFEST.tensors if t.layer in layers]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_may_be_any_bytes_and_is_not_copied(kind):
    body = kind(encode_bundle(update()))
    for entry in parse_bundle(body, MANIFEST).entries:
        assert isinstance(entry.payload, memoryview)
        assert entry.payload.obj is (body.obj if kind is memoryview else body)


def test_a_value_that_cannot_be_carried_names_its_tensor():
    broken = model()
    broken.floats[MANIFEST.spans["norm.var"]] = 1e9
    with pytest.raises(WireError, match=r"'norm\.var'.*1000000000") as refusal:
        model_entries(broken, MANIFEST, MANIFEST.tensors, Polyline(4))
    assert refusal.value.field == "norm.var"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_examples": 0}, "num_examples"),
        ({"num_examples": 2**24 + 1}, "num_examples"),
        ({"base_version": -1}, "base_version"),
        ({"version": 1}, "version"),
        ({"base_version": None}, "version"),
        ({"federation": ""}, "federation"),
    ],
)
def test_a_bundle_that_no_one_would_read_is_not_written(change, field):
    with pytest.raises(WireError) as refusal:
        encode_bundle(dataclasses.replace(update(), **change))
    assert refusal.value.field == field


ENTRY_CHANGES = {
    "unknown tensor": ({"tensor": "conv.scale"}, "tensor"),
    "other layer": ({"layer": "head"}, "layer"),
    "other shape": ({"shape": [12]}, "shape"),
    "transposed": ({"shape": [2, 3, 2]}, "shape"),
    "unknown slot": ({"slot": "velocity"}, "slot"),
    "unknown reference": ({"reference": "older"}, "reference"),
    "differences of float32": (
        {"reference": "base", "codec": "float32", "precision": None, "layout": None},
        "reference",
    ),
    "unknown codec": ({"codec": "gzip"}, "codec"),
    "unknown precision": ({"precision": 9}, "precision"),
    "unknown layout": ({"layout": "rows"}, "layout"),
    "integers for floats": ({"codec": "int64", "precision": None, "layout": None}, "codec"),
    "member of another codec": ({"codec": "float32", "layout": None}, "precision"),
    "too few bytes": ({"nbytes": 11}, "nbytes"),
    "too many bytes": ({"nbytes": 85}, "nbytes"),
    "a boolean": ({"nbytes": True}, "nbytes"),
    "other checksum": ({"crc32": 1}, "crc32"),
    "unknown member": ({"levels": 3}, "levels"),
}


@pytest.mark.parametrize(("change", "field"), ENTRY_CHANGES.values(), ids=ENTRY_CHANGES.keys())
def test_an_entry_that_does_not_fit_the_model_is_named(change, field):
    members, payloads = split(encode_bundle(update()))
    members["entries"][0] |= change
    assert refusal_of(join(members, payloads)).field == f"entries[0].{field}"


def test_floats_for_integers_are_refused():
    members, payloads = split(encode_bundle(update()))
    members["entries"][3] |= {"codec": "float32"}
    assert refusal_of(join(members, payloads)).field == "entries[3].codec"


def test_a_tensor_that_stands_twice_is_refused():
    members, payloads = split(encode_bundle(update()))
    members["entries"].insert(1, members["entries"][0])
    assert refusal_of(join(members, payloads)).field == "entries[1].tensor"


def test_another_order_is_refused():
    members, payloads = split(encode_bundle(update()))
    members["entries"].reverse()
    assert refusal_of(join(members, payloads)).field == "entries[1].tensor"


@pytest.mark.parametrize("missing", ["conv.weight", "conv.bias", "norm.count"])
def test_any_tensors_can_travel_but_a_model_is_whole(missing):
    bundle = update()
    entries = tuple(e for e in bundle.entries if e.tensor.name != missing)
    parsed = parse_bundle(encode_bundle(dataclasses.replace(bundle, entries=entries)), MANIFEST)
    assert missing not in decode_bundle(parsed)["weights"]
    with pytest.raises(WireError, match="missing") as refused:
        decode_model(parsed, MANIFEST)
    assert refused.value.field == missing


def test_slots_travel_beside_the_weights_and_come_back_apart():
    weights = update(Float32()).entries
    learns = tuple(tensor for tensor in MANIFEST.tensors if tensor.trainable)
    control = model_entries(model(), MANIFEST, learns, Float32(), "control")
    parsed = parse_bundle(encode_bundle(Bundle("mnist", (*weights, *control), base_version=7)), MANIFEST)
    slots = decode_bundle(parsed)
    assert set(slots) == {"weights", "control"}
    assert set(slots["control"]) == {tensor.name for tensor in learns}
    body = encode_bundle(Bundle("mnist", (*control, *weights), base_version=7))
    assert refusal_of(body).field == f"entries[{len(control)}].tensor"


@pytest.mark.parametrize("change", [lambda body: body + b"?", lambda body: body[:-1]], ids=["more", "less"])
def test_payload_bytes_must_be_exactly_those_of_the_header(change):
    assert refusal_of(change(encode_bundle(update()))).field == "body"


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (Polyline(4, "pairs"), b"?" * 11 + b"\x7f"),
        (Polyline(4, "plain"), b"~" * 12),
        (Float32(), np.full(12, np.nan, "<f4").tobytes()),
        (Float16(), np.full(12, np.inf, "<f2").tobytes()),
    ],
    ids=str,
)
def test_a_payload_with_bad_values_names_its_tensor(codec, payload):
    bundle = update()
    bad = dataclasses.replace(bundle.entries[0], codec=codec, payload=payload, crc32=zlib.crc32(payload))
    body = encode_bundle(dataclasses.replace(bundle, entries=(bad, *bundle.entries[1:])))
    refusal = refusal_of(body)
    assert refusal.field == "conv.weight"
    assert "'conv.weight'" in str(refusal)
    with pytest.raises(WireError) as decoding:
        decode_bundle(parse_bundle(body, MANIFEST))
    assert decoding.value.field == "conv.weight"


def test_a_model_needs_every_tensor():
    with pytest.raises(WireError, match="missing") as refusal:
        decode_model(update(layers=["conv", "norm", "empty"]), MANIFEST)
    assert refusal.value.field == "head.weight"


@every_codec
def test_no_bundle_is_larger_than_the_limit(codec):
    largest = Model(np.full(MANIFEST.num_floats, -1000.0, np.float32), np.asarray([-1], np.int64))
    largest.floats[::2] = 1000.0
    body = encode_bundle(Bundle("f" * 64, model_entries(largest, MANIFEST, MANIFEST.tensors, codec), 2**52))
    assert len(body) <= max_bundle_bytes(MANIFEST, codec)


def test_the_limit_grows_with_what_the_codec_may_take():
    size = MANIFEST.num_floats
    assert max_bundle_bytes(MANIFEST, Float32()) - max_bundle_bytes(MANIFEST, Float16()) == 2 * size
    assert max_bundle_bytes(MANIFEST, Polyline(4, "flat")) - max_bundle_bytes(MANIFEST, Float32()) == 3 * size


def test_a_description_is_json_and_adds_up():
    bundle = update()
    described = json.loads(json.dumps(describe(bundle)))
    assert described["federation"] == "mnist"
    assert described["base_version"] == 7
    assert described["parameters"] == sum(t.size for t in MANIFEST.tensors)
    assert described["payload_bytes"] == sum(entry["nbytes"] for entry in described["entries"])
    assert [entry["tensor"] for entry in described["entries"]] == [t.name for t in MANIFEST.tensors]
