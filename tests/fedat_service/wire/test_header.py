import json

import pytest

from fedat_service.errors import WireError
from fedat_service.wire.header import make_header, read_header, size_bound, write_header

ENTRY = {
    "slot": "weights",
    "layer": "conv1",
    "tensor": "conv1.weight",
    "shape": [2, 3],
    "codec": "polyline",
    "precision": 4,
    "layout": "pairs",
    "reference": "absolute",
    "nbytes": 12,
    "crc32": 7,
}
UPDATE = {"federation": "mnist", "base_version": 3, "num_examples": 60, "entries": [ENTRY]}


def read(members):
    return read_header(json.dumps(members).encode())


def test_a_header_comes_back_from_its_bytes():
    header = make_header(UPDATE)
    assert read_header(write_header(header)) == header
    assert json.loads(write_header(header)) == UPDATE


def test_codec_fields_are_those_of_the_codec():
    assert read(UPDATE).entries[0].codec_fields() == {"codec": "polyline", "precision": 4, "layout": "pairs"}
    plain = {k: v for k, v in ENTRY.items() if k not in ("precision", "layout")} | {"codec": "float32"}
    assert read(UPDATE | {"entries": [plain]}).entries[0].codec_fields() == {"codec": "float32"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slot": "velocity"}, "slot"),
        ({"reference": "older"}, "reference"),
        ({"shape": [True, 3]}, "shape[0]"),
        ({"shape": [2.0, 3]}, "shape[0]"),
        ({"shape": [2, -3]}, "shape[1]"),
        ({"shape": ["2", 3]}, "shape[0]"),
        ({"shape": [1] * 9}, "shape"),
        ({"shape": 6}, "shape"),
        ({"nbytes": -1}, "nbytes"),
        ({"nbytes": "12"}, "nbytes"),
        ({"nbytes": 2**53}, "nbytes"),
        ({"crc32": 2**32}, "crc32"),
        ({"crc32": False}, "crc32"),
        ({"precision": 4.0}, "precision"),
        ({"precision": [[[[4]]]]}, "precision"),
        ({"layout": "x" * 129}, "layout"),
        ({"codec": 1}, "codec"),
        ({"layer": None}, "layer"),
        ({"tensor": 3}, "tensor"),
        ({"levels": -4}, "levels"),
    ],
)
def test_a_wrong_member_of_an_entry_is_named(change, field):
    with pytest.raises(WireError) as refusal:
        read(UPDATE | {"entries": [ENTRY, ENTRY | change]})
    assert refusal.value.field == f"entries[1].{field}"


@pytest.mark.parametrize("member", [m for m in ENTRY if m not in ("precision", "layout")])
def test_a_missing_member_of_an_entry_is_named(member):
    with pytest.raises(WireError) as refusal:
        read(UPDATE | {"entries": [{k: v for k, v in ENTRY.items() if k != member}]})
    assert refusal.value.field == f"entries[0].{member}"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"federation": "No Such Name"}, "federation"),
        ({"federation": 1}, "federation"),
        ({"base_version": -1}, "base_version"),
        ({"base_version": True}, "base_version"),
        ({"base_version": 3.0}, "base_version"),
        ({"version": 3}, "version"),
        ({"base_version": None}, "version"),
        ({"base_version": None, "version": 3}, "num_examples"),
        ({"num_examples": 0}, "num_examples"),
        ({"num_examples": 2**24 + 1}, "num_examples"),
        ({"num_examples": True}, "num_examples"),
        ({"entries": {}}, "entries"),
        ({"entries": [3]}, "entries[0]"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_wrong_member_of_the_header_is_named(change, field):
    with pytest.raises(WireError) as refusal:
        read(UPDATE | change)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}{}",
        b"\xff\xfe",
        b'{"federation":"f","version":0,"entries":[]} x',
        b'{"version":NaN}',
        b'{"version":Infinity}',
        b'{"version":' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"entries":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=range(13),
)
def test_what_is_no_header_is_refused(data):
    with pytest.raises(WireError):
        read_header(data)


def test_differences_need_the_version_that_they_are_taken_to():
    difference = ENTRY | {"reference": "base"}
    assert read(UPDATE | {"entries": [difference]}).entries[0].reference == "base"
    with pytest.raises(WireError) as refusal:
        read({"federation": "mnist", "version": 3, "entries": [difference]})
    assert refusal.value.field == "base_version"


def test_a_member_that_stands_twice_is_named():
    with pytest.raises(WireError, match="twice") as refusal:
        read_header(b'{"federation":"f","version":0,"version":1,"entries":[]}')
    assert refusal.value.field == "version"


def test_a_stranger_s_name_is_cut():
    with pytest.raises(WireError) as refusal:
        read(UPDATE | {"x" * 10_000: 1})
    assert len(refusal.value.field) <= 128
    assert len(str(refusal.value)) < 500


def test_the_largest_legal_header_is_within_its_bound():
    entry = ENTRY | {
        "layer": "l" * 128,
        "tensor": "t" * 128,
        "shape": [2**40] * 8,
        "nbytes": 2**53 - 1,
        "crc32": 2**32 - 1,
    }
    for count in (0, 1, 50):
        members = UPDATE | {
            "federation": "f" * 64,
            "base_version": 2**53 - 1,
            "num_examples": 2**24,
            "entries": [entry] * count,
        }
        assert len(json.dumps(members)) <= size_bound(count)
