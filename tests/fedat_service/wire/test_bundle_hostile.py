import dataclasses
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedat_service.errors import WireError
from fedat_service.params import Manifest, TensorSpec, initial_model
from fedat_service.wire.bundle import MAGIC, Bundle, check_bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Float16, Float32, Polyline
from fedat_service.wire.entries import model_entries

MANIFEST = Manifest(
    (
        TensorSpec("conv.weight", (3, 2, 2), "float32", "conv"),
        TensorSpec("norm.var", (3,), "float32", "norm", trainable=False),
        TensorSpec("norm.count", (), "int64", "norm", trainable=False),
    )
)
CODECS = [Float32(), Float16(), Polyline(4, "pairs"), Polyline(6, "flat"), Polyline(3, "plain")]


def update(codec):
    entries = model_entries(initial_model(MANIFEST, seed=1), MANIFEST, MANIFEST.tensors, codec)
    return Bundle(federation="mnist", entries=entries, base_version=7, num_examples=60)


def decode_or_refuse(body):
    """Whether a body decodes; anything but a WireError is a failure of the test."""
    try:
        bundle = parse_bundle(body, MANIFEST)
        check_bundle(bundle)
    except WireError:
        return False
    for entry in bundle.entries:
        entry.codec.decode(entry.payload, entry.tensor.size)
    return True


def refusal_of(body):
    with pytest.raises(WireError) as refusal:
        parse_bundle(body, MANIFEST)
    return refusal.value


@pytest.mark.parametrize("size", range(11))
def test_less_than_a_frame_is_refused(size):
    assert refusal_of(encode_bundle(update(CODECS[2]))[:size]).field in ("magic", "header")


def test_another_magic_is_refused():
    assert refusal_of(b"FEDAT2\n" + encode_bundle(update(CODECS[2]))[7:]).field == "magic"


@pytest.mark.parametrize("size", [2**32 - 1, 10_000, 20_000])
def test_a_header_that_claims_too_much_is_refused_unread(size):
    body = MAGIC + size.to_bytes(4, "little") + b"[" * 9000
    assert "claims" in str(refusal_of(body))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_a_damaged_bundle_is_refused_or_means_what_it_says(data, codec):
    body = bytearray(encode_bundle(update(codec)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    if decode_or_refuse(bytes(body)):
        assert encode_bundle(parse_bundle(body, MANIFEST))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_damaged_payloads_with_right_checksums_are_decoded_or_refused(data, codec):
    bundle = update(codec)
    entries = []
    for entry in bundle.entries:
        payload = bytearray(entry.payload)
        if payload and data.draw(st.booleans()):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
        entries.append(dataclasses.replace(entry, payload=bytes(payload), crc32=zlib.crc32(payload)))
    decode_or_refuse(encode_bundle(dataclasses.replace(bundle, entries=tuple(entries))))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(noise):
    assert not decode_or_refuse(noise)
    assert not decode_or_refuse(MAGIC + len(noise).to_bytes(4, "little") + noise)
