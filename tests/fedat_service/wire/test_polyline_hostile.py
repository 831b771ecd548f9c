import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedat_service.errors import WireError
from fedat_service.wire import polyline
from fedat_service.wire.polyline import BACKENDS, PRECISIONS

LAYOUTS = ("pairs", "flat", "plain")

every_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())


def float32(values):
    return np.asarray(values, np.float32)


def outcome(operation, *arguments):
    """What an operation gives, or how it refuses, in a form that can be compared bit for bit."""
    try:
        result = operation(*arguments)
    except WireError as error:
        return str(error)
    return result.tobytes() if isinstance(result, np.ndarray) else result


@every_backend
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_payloads_may_be_any_bytes(backend, kind):
    payload = kind(backend.encode(float32([0.5, -0.25, 1.0]), 4))
    assert backend.decode(payload, 3, 4).tolist() == [0.5, -0.25, 1.0]
    backend.check(payload, 3)


MISUSES = {
    "a lag that would reach before the values": lambda c: c.encode(np.zeros(4, np.float32), 1e4, 3),
    "a negative lag": lambda c: c.check(b"?", 1, -1),
    "a negative count": lambda c: c.check(b"?", -1, 0),
    "half a float": lambda c: c.encode(b"123456", 1e4, 0),
    "half a double": lambda c: c.add(b"?", bytearray(12), 1.0, 0),
    "unaligned values": lambda c: c.decode(b"?", memoryview(bytearray(9))[1:5], 1e4, 0),
    "a factor that divides by zero": lambda c: c.decode(b"?", np.zeros(1, np.float32), 0.0, 0),
    "a factor that is no number": lambda c: c.encode(np.zeros(4, np.float32), np.nan, 0),
    "a read-only result": lambda c: c.decode(b"?", b"1234", 1e4, 0),
    "text": lambda c: c.check("?", 1, 0),
}


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "numpy"])
@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES.keys())
def test_the_c_half_keeps_its_memory_safe_by_itself(name, misuse):
    with pytest.raises((ValueError, TypeError, BufferError)):
        misuse(BACKENDS[name].kernels)


MALFORMED = {
    "empty": (b"", 2, "flat", "only 0 of 2 values"),
    "too few": (b"??", 3, "flat", "only 2 of 3 values"),
    "too many": (b"????", 3, "flat", "bytes left after 3 values"),
    "trailing open character": (b"??_", 2, "flat", "bytes left after 2 values"),
    "one of none": (b"?", 0, "flat", "bytes left after 0 values"),
    "unterminated": (b"?_", 2, "flat", "value 1 is not terminated"),
    "unterminated seven": (b"?~~~~~~~", 2, "flat", "value 1 is not terminated"),
    "eight characters": (b"?~~~~~~~?", 2, "flat", "value 1 has more than 7 characters"),
    "below the alphabet": (b"?>", 2, "flat", "value 1 has a byte outside"),
    "above the alphabet": (b"?\x7f", 2, "flat", "value 1 has a byte outside"),
    "not ASCII": (b"?\xff", 2, "flat", "value 1 has a byte outside"),
    "zero byte": (b"\0?", 2, "flat", "value 0 has a byte outside"),
    "33 bits": (b"~~~~~~C?", 2, "flat", "value 0 is out of range"),
    "2**30": (b"______A?", 2, "plain", "value 0 is out of range"),
    "-2**30": (b"~~~~~~@?", 2, "plain", "value 0 is out of range"),
    "sum beyond the range": (b"}~~~~~@" * 3, 3, "flat", "value 1 is out of range"),
    "sum of a column beyond the range": (b"}~~~~~@?" * 2, 4, "pairs", "value 2 is out of range"),
    "pad is not '?'": (b"??@@", 3, "pairs", "pad"),
    "pad missing": (b"??@", 3, "pairs", "pad"),
    "pad hides an open value": (b"??_?", 3, "pairs", "value 2 is not terminated"),
}


@every_backend
@pytest.mark.parametrize(("payload", "count", "layout", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_payloads_are_refused_by_name(backend, payload, count, layout, message):
    for operation in (
        lambda: backend.check(payload, count, layout),
        lambda: backend.add(payload, 1.0, np.zeros(count), layout),
    ):
        with pytest.raises(WireError, match=message):
            operation()
    with pytest.raises(WireError):
        backend.decode(payload, count, 4, layout)


@every_backend
@pytest.mark.parametrize("index", [0, 1, 5, 1023, 1024, 1025, 33_333, 59_999])
@pytest.mark.parametrize("character", [b"\x3e", b"\x7f", b"\x80", b"\xff"])
def test_a_bad_byte_is_found_wherever_it_stands(backend, index, character):
    payload = bytearray(b"@?" * 30_000)
    payload[index : index + 1] = character
    with pytest.raises(WireError, match=f"value {index} has a byte outside"):
        backend.check(payload, 60_000, "flat")


@every_backend
@pytest.mark.parametrize("lead", [0, 3, 100, 5000, 100_000])
def test_a_sum_that_leaves_the_range_is_found_wherever_it_does(backend, lead):
    rise = backend.encode(float32([107_000.0]), 4, "plain")
    payload = b"A@" * lead + rise * 2 + b"?" * 100
    with pytest.raises(WireError, match=f"value {2 * lead + 1} is out of range"):
        backend.check(payload, 2 * lead + 102, "flat")


@every_backend
def test_an_endless_value_is_refused_at_its_eighth_character(backend):
    with pytest.raises(WireError, match="value 0 has more than 7 characters"):
        backend.check(b"~" * 1_000_000, 1_000_000, "pairs")


@every_backend
@pytest.mark.parametrize("count", [-1, 2, 2**40, 2**62])
def test_a_count_the_payload_cannot_hold_allocates_nothing(backend, count):
    with pytest.raises(WireError, match=f"cannot hold {count} values|pad|only 1 of"):
        backend.decode(b"?", count, 4, "plain")
    with pytest.raises(WireError):
        backend.check(b"?", count, "plain")


@st.composite
def hostile(draw):
    """Bytes near the alphabet, and valid payloads with a few wounds."""
    near = st.lists(st.sampled_from([0, 62, 63, 64, 94, 95, 96, 125, 126, 127, 128, 255]), max_size=30)
    layout = draw(st.sampled_from(LAYOUTS))
    if draw(st.booleans()):
        payload = bytearray(draw(st.one_of(near.map(bytes), st.binary(max_size=200))))
        return bytes(payload), draw(st.integers(0, 40)), layout
    values = float32(draw(st.lists(st.one_of(st.floats(-1, 1), st.floats(-107e3, 107e3)), max_size=120)))
    payload = bytearray(polyline.encode(values, 4, layout))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(payload)))
        payload[at : at + draw(st.integers(0, 2))] = bytes(draw(near)[:4])
    return bytes(payload), max(0, values.size + draw(st.sampled_from([0, 0, 0, -1, 1]))), layout


@settings(max_examples=150, deadline=None)
@given(hostile())
def test_all_backends_agree_on_hostile_bytes(given_bytes):
    payload, count, layout = given_bytes
    for operation in (
        lambda b: outcome(b.check, payload, count, layout),
        lambda b: outcome(b.decode, payload, count, 4, layout),
    ):
        assert len({operation(backend) for backend in BACKENDS.values()}) == 1


@every_backend
@settings(max_examples=60, deadline=None)
@given(hostile())
def test_check_and_add_accept_exactly_what_decodes(backend, given_bytes):
    payload, count, layout = given_bytes
    total = np.zeros(count)
    outcomes = [
        outcome(backend.decode, payload, count, 4, layout),
        outcome(backend.check, payload, count, layout),
        outcome(backend.add, payload, 1.0, total, layout),
    ]
    refused = [isinstance(result, str) for result in outcomes]
    assert refused in ([True] * 3, [False] * 3)
    if not refused[0]:
        assert float32(total / 1e4).tobytes() == outcomes[0]


def test_all_backends_agree_on_long_payloads():
    rng = np.random.default_rng(3)
    values = float32(rng.normal(0.0, 0.05, 30_001))
    for layout, precision in [*zip(LAYOUTS, PRECISIONS, strict=False), ("pairs", 6)]:
        payload = bytearray(polyline.encode(values, precision, layout))
        for wounds in range(8):
            found = {outcome(b.check, payload, values.size, layout) for b in BACKENDS.values()}
            assert len(found) == 1
            assert (found == {None}) or wounds > 0
            sums = set()
            for backend in BACKENDS.values():
                total = np.arange(values.size, dtype=float)
                if found == {None}:
                    backend.add(payload, 0.37, total, layout)
                sums.add(total.tobytes())
            assert len(sums) == 1
            payload[rng.integers(len(payload))] = rng.choice([63, 70, 96, 126, 62, 127])
