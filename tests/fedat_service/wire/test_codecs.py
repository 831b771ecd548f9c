import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedat_service.errors import WireError
from fedat_service.wire.affine import Affine8
from fedat_service.wire.codecs import (
    Float16,
    Float32,
    Int64,
    Polyline,
    make_codec,
    parse_codec,
)
from fedat_service.wire.polyline import BACKENDS
from fedat_service.wire.qsgd import Qsgd
from fedat_service.wire.settings import CodecSettings

CODECS = {"float32": Float32(), "float16": Float16(), "plain": Polyline(6, "plain")} | {
    f"pairs-{name}": Polyline(4, "pairs", backend) for name, backend in BACKENDS.items()
}

every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
quick = settings(max_examples=50, deadline=None)
values = st.lists(st.floats(-1000, 1000, width=32), max_size=30).map(lambda v: np.asarray(v, np.float32))


@every_codec
@quick
@given(values=values)
def test_values_come_back_within_the_precision_of_the_codec(codec, values):
    decoded = codec.decode(codec.encode(values), values.size)
    assert decoded.dtype == np.float32
    steps = {Float32: 0.0, Float16: 0.25, Polyline: 0.5 / codec.scale + 4e-5}
    np.testing.assert_allclose(decoded, values, rtol=0, atol=steps[type(codec)])


@every_codec
@quick
@given(values=values, weight=st.integers(1, 1000))
def test_add_is_weight_times_scale_times_what_decodes(codec, values, weight):
    payload = codec.encode(values)
    total = np.ones(values.size)
    codec.add(payload, float(weight), total)
    expected = 1 + weight * codec.scale * codec.decode(payload, values.size).astype(float)
    np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-6)


@every_codec
def test_add_writes_only_its_slice(codec):
    payload = codec.encode(np.asarray([1.0, 2.0, 3.0], np.float32))
    total = np.zeros(9)
    codec.add(payload, 1.0, total[3:6])
    assert np.flatnonzero(total).tolist() == [3, 4, 5]


@every_codec
@quick
@given(values=values)
def test_sizes_are_within_the_bounds(codec, values):
    fewest, most = codec.size_bounds(values.size)
    assert fewest <= len(codec.encode(values)) <= most


@every_codec
@pytest.mark.parametrize("change", [b"", b"?", b"??????????"], ids=["short", "longer", "much longer"])
def test_a_wrong_length_is_refused(codec, change):
    payload = codec.encode(np.asarray([1.0, 2.0, 3.0], np.float32))
    wrong = payload + change if change else payload[:-1]
    for operation in (
        lambda: codec.check(wrong, 3),
        lambda: codec.decode(wrong, 3),
        lambda: codec.add(wrong, 1.0, np.zeros(3)),
    ):
        with pytest.raises(WireError):
            operation()


@every_codec
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_not_encoded(codec, bad):
    with pytest.raises(WireError, match="at index 1"):
        codec.encode(np.asarray([0.0, bad], np.float32))


@pytest.mark.parametrize("codec", [Float32(), Float16()], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_payloads_that_are_no_numbers_are_refused(codec, bad, index):
    values = np.asarray([0.0, 1.0, 2.0], codec.dtype)
    values[index] = bad
    payload = values.tobytes()
    for operation in (
        lambda: codec.check(payload, 3),
        lambda: codec.decode(payload, 3),
        lambda: codec.add(payload, 1.0, np.zeros(3)),
    ):
        with pytest.raises(WireError, match=f"at index {index}"):
            operation()


def test_float16_refuses_what_would_become_infinite():
    assert Float16().decode(Float16().encode(np.asarray([65519.0], np.float32)), 1) == [65504.0]
    with pytest.raises(WireError, match=r"value 65520\.0 at index 1 is not a finite float16"):
        Float16().encode(np.asarray([0.0, 65520.0], np.float32))


def test_floats_travel_in_little_endian():
    assert Float32().encode(np.asarray([1.0], np.float32)) == b"\0\0\x80\x3f"
    assert Float16().encode(np.asarray([1.0], np.float32)) == b"\0\x3c"
    assert Int64().encode(np.asarray([-2])) == b"\xfe" + b"\xff" * 7


@quick
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_come_back_exactly(integers):
    payload = Int64().encode(np.asarray(integers, np.int64))
    Int64().check(payload, len(integers))
    assert Int64().decode(payload, len(integers)).tolist() == integers


@pytest.mark.parametrize("count", [-1, 0, 2])
def test_integers_take_eight_bytes_each(count):
    with pytest.raises(WireError, match="bytes"):
        Int64().check(b"\0" * 8, count)
    with pytest.raises(WireError, match="bytes"):
        Int64().decode(b"\0" * 8, count)


@pytest.mark.parametrize(
    "codec", [Float32(), Float16(), Polyline(6, "plain"), Int64(), Qsgd(15), Affine8()], ids=str
)
def test_codecs_are_read_back_from_their_fields(codec):
    assert parse_codec(codec.fields()) == codec


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        (CodecSettings(), Polyline(4, "pairs")),
        (CodecSettings(name="polyline", precision=6, layout="flat"), Polyline(6, "flat")),
        (CodecSettings(name="float32"), Float32()),
        (CodecSettings(name="float16"), Float16()),
        (CodecSettings(name="qsgd", levels=15), Float32()),
        (CodecSettings(name="affine8"), Float32()),
    ],
)
def test_settings_make_the_codec_of_models(settings, codec):
    assert make_codec(settings) == codec


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "codec"),
        ({"codec": "gzip"}, "codec"),
        ({"codec": ["polyline"]}, "codec"),
        ({"codec": "polyline"}, "precision"),
        ({"codec": "polyline", "precision": 4}, "layout"),
        ({"codec": "polyline", "precision": 7, "layout": "pairs"}, "precision"),
        ({"codec": "polyline", "precision": True, "layout": "pairs"}, "precision"),
        ({"codec": "polyline", "precision": 4, "layout": "rows"}, "layout"),
        ({"codec": "float32", "precision": 4}, "precision"),
        ({"codec": "int64", "levels": 4}, "levels"),
        ({"codec": "qsgd"}, "levels"),
        ({"codec": "qsgd", "levels": 0}, "levels"),
        ({"codec": "qsgd", "levels": 4, "precision": 4}, "precision"),
        ({"codec": "affine8", "levels": 256}, "levels"),
    ],
)
def test_unknown_codecs_and_members_are_named(fields, field):
    with pytest.raises(WireError) as refusal:
        parse_codec(fields)
    assert refusal.value.field == field


def test_which_backend_runs_does_not_make_another_codec():
    assert len({Polyline(4, "pairs", backend) for backend in BACKENDS.values()}) == 1
