import json
from fractions import Fraction
from itertools import zip_longest
from math import floor
from pathlib import Path

import numpy as np
import polyline as package
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedat_service.errors import WireError
from fedat_service.wire import polyline
from fedat_service.wire.polyline import BACKENDS, PRECISIONS

LAYOUTS = ("pairs", "flat", "plain")
GOLDEN = [
    case
    for case in json.loads((Path(__file__).parents[2] / "golden" / "golden.json").read_text())["cases"]
    if case["id"].startswith("polyline_")
]

every_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
every_precision = pytest.mark.parametrize("precision", PRECISIONS)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
thorough = settings(max_examples=40, deadline=None)


def float32(values):
    return np.asarray(values, np.float32)


def limit(precision):
    """The largest float32 whose integer is below 2**30."""
    return float(np.nextafter(np.float32((2**30 - 0.5) / 10**precision), np.float32(0)))


@st.composite
def arrays(draw, precision, max_size=40):
    """Any finite float32 the format can carry, and many of the awkward ones."""
    top = limit(precision)
    ties = st.integers(-(2**20), 2**20).map(lambda k: (k + 0.5) / 10**precision)
    value = st.one_of(
        st.floats(-top, top, width=32),
        st.floats(-1, 1, width=32),
        ties,
        st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1e-38, top, -top]),
    )
    return float32(draw(st.lists(value, max_size=max_size)))


def package_encode(values, precision):
    # Python floats: the package rounds NumPy's float32 scalars in float32.
    column = values.tolist()
    # An odd tail is padded with the value two back, whose difference is '?'.
    padded = [*column, column[-2] if len(column) > 1 else 0.0] if len(column) % 2 else column
    return (
        package.encode(list(zip(padded[::2], padded[1::2], strict=True)), precision).encode()
        if column
        else b""
    )


def reference_encode(values, precision, layout):
    """The definition, in exact arithmetic and one character at a time."""
    exact = [Fraction(x) * 10**precision for x in values.tolist()]
    q = [floor(abs(y) + Fraction(1, 2)) * (1 if y > 0 else -1) for y in exact]
    lag = LAYOUTS[::-1].index(layout)
    text = ""
    for i, value in enumerate(q):
        d = value - (q[i - lag] if lag and i >= lag else 0)
        z = 2 * d if d >= 0 else -2 * d - 1
        while z >= 32:
            text += chr(z % 32 + 32 + 63)
            z //= 32
        text += chr(z + 63)
    return (text + "?" * (layout == "pairs" and len(q) % 2)).encode()


def outcome(operation, *arguments):
    """What an operation gives, or how it refuses, in a form that can be compared bit for bit."""
    try:
        result = operation(*arguments)
    except WireError as error:
        return str(error)
    return result.tobytes() if isinstance(result, np.ndarray) else result


@every_backend
@pytest.mark.parametrize("case", GOLDEN, ids=[case["id"] for case in GOLDEN])
def test_golden_strings(backend, case):
    # The inputs are float64, with a tie that no float32 holds: encode the grid points they stand for.
    precision, expected = case["inputs"]["precision"], case["outputs"]
    points = float32(expected.get("decoded", case["inputs"]["values"]))
    names = (
        {"pairs": "pairs", "flat": "one_d", "plain": "no_delta"} if "q" in expected else {"pairs": "string"}
    )
    for layout, name in names.items():
        assert backend.encode(points, precision, layout).decode() == expected[name]
        decoded = backend.decode(expected[name].encode(), points.size, precision, layout)
        np.testing.assert_allclose(decoded, points, rtol=case["rtol"])
    if "q" in expected:
        assert backend.quantise(points, precision).tolist() == expected["q"]


@every_backend
@every_precision
@thorough
@given(data=st.data())
def test_pairs_are_the_bytes_of_the_package(backend, precision, data):
    values = data.draw(arrays(precision))
    assert backend.encode(values, precision, "pairs") == package_encode(values, precision)


@every_backend
@every_precision
@thorough
@given(data=st.data())
def test_pairs_decode_to_the_floats_of_the_package(backend, precision, data):
    values = data.draw(arrays(precision))
    payload = package_encode(values, precision)
    expected = [x for pair in package.decode(payload.decode(), precision) for x in pair][: values.size]
    np.testing.assert_array_equal(backend.decode(payload, values.size, precision, "pairs"), float32(expected))


@every_backend
@every_layout
@thorough
@given(data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_every_layout_follows_its_definition(backend, layout, data, precision):
    values = data.draw(arrays(precision))
    assert backend.encode(values, precision, layout) == reference_encode(values, precision, layout)


@every_backend
@pytest.mark.parametrize("size", [1, 2, 71, 72, 73, 1023, 1024, 1025, 2049, 40_001])
@pytest.mark.parametrize("spread", [1e-4, 0.05, 2.0, 10_000.0])
def test_long_arrays_are_the_bytes_and_floats_of_the_package(backend, size, spread):
    values = float32(np.random.default_rng(size).normal(0.0, spread, size))
    payload = package_encode(values, 4)
    assert backend.encode(values, 4, "pairs") == payload
    expected = [x for pair in package.decode(payload.decode(), 4) for x in pair][:size]
    np.testing.assert_array_equal(backend.decode(payload, size, 4, "pairs"), float32(expected))


@every_backend
@every_layout
def test_long_arrays_come_back_within_half_a_step(backend, layout):
    values = float32(np.random.default_rng(5).normal(0.0, 0.05, 70_001))
    payload = backend.encode(values, 4, layout)
    backend.check(payload, values.size, layout)
    error = np.abs(backend.decode(payload, values.size, 4, layout).astype(float) - values)
    assert error.max() <= 0.5e-4 + 1e-8


@every_backend
@thorough
@given(data=st.data(), precision=st.sampled_from(PRECISIONS), layout=st.sampled_from(LAYOUTS))
def test_decoded_values_encode_to_the_same_bytes(backend, data, precision, layout):
    # Below 2**24 every grid point has its own float32.
    values = data.draw(arrays(precision))
    values = values[np.abs(values.astype(float)) * 10**precision < 2**23]
    payload = backend.encode(values, precision, layout)
    decoded = backend.decode(payload, values.size, precision, layout)
    assert backend.encode(decoded, precision, layout) == payload


@pytest.mark.parametrize("values", [[0.1], [0.1, -0.2, 0.3, 0.4], [1.0, 2.0, 3.0]])
def test_a_stock_library_can_read_the_flat_layout(values):
    # What a decoder of pairs sees are two running sums of every other difference.
    text = polyline.encode(float32(values), 4, "flat").decode() + "?" * (len(values) % 2)
    pairs = package.decode(text, 4)
    rebuilt = []
    odd = 0.0
    for even_sum, odd_sum in pairs:
        rebuilt += [even_sum + odd, even_sum + odd_sum]
        odd = odd_sum
    assert rebuilt[: len(values)] == pytest.approx(values)


@every_backend
@every_layout
def test_an_empty_array_is_an_empty_string(backend, layout):
    assert backend.encode(float32([]), 4, layout) == b""
    assert backend.decode(b"", 0, 4, layout).size == 0
    backend.check(b"", 0, layout)


@every_backend
@every_precision
def test_the_largest_integers_are_carried(backend, precision):
    top = limit(precision)
    values = float32([top, -top, top, top, -top])
    q = backend.quantise(values, precision)
    assert 2**30 - 2**7 < q[0] < 2**30
    decoded = backend.decode(backend.encode(values, precision), 5, precision)
    np.testing.assert_array_equal(decoded, float32(q.astype(float) / 10**precision))


@every_backend
@every_precision
@pytest.mark.parametrize("position", [0, 1, 1030, 40_000])
def test_a_value_that_cannot_be_carried_is_named(backend, precision, position):
    beyond = np.nextafter(np.float32(limit(precision)), np.float32(np.inf))
    for bad in (np.nan, np.inf, -np.inf, 3e38, beyond, -beyond):
        values = np.zeros(40_001, np.float32)
        values[position] = bad
        for refuse in (
            lambda v=values: backend.encode(v, precision),
            lambda v=values: backend.quantise(v, precision),
        ):
            with pytest.raises(WireError, match=f"at index {position} ") as refusal:
                refuse()
            assert f"value {values[position]} " in str(refusal.value)


@every_backend
@pytest.mark.parametrize(
    "values",
    [np.zeros(3), np.zeros((2, 2), np.float32), np.zeros(6, np.float32)[::2], np.zeros(3, np.int32)],
    ids=["float64", "matrix", "strided", "int32"],
)
def test_only_contiguous_float32_vectors_are_encoded(backend, values):
    with pytest.raises(WireError, match="values must be"):
        backend.encode(values, 4)
    with pytest.raises(WireError, match="values must be"):
        backend.quantise(values, 4)


@every_backend
@pytest.mark.parametrize("precision", [2, 7, 0, -4, 4.0, True, "4", None])
def test_an_unknown_precision_is_refused(backend, precision):
    with pytest.raises(WireError, match="precision") as refusal:
        backend.encode(float32([1]), precision)
    assert refusal.value.field == "precision"


@every_backend
@pytest.mark.parametrize("layout", ["triples", "", None, ["pairs"]])
def test_an_unknown_layout_is_refused(backend, layout):
    with pytest.raises(WireError, match="layout") as refusal:
        backend.check(b"??", 2, layout)
    assert refusal.value.field == "layout"


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
    values = draw(arrays(4, max_size=120))
    payload = bytearray(polyline.encode(values, 4, layout))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(payload)))
        payload[at : at + draw(st.integers(0, 2))] = bytes(draw(near)[:4])
    return bytes(payload), max(0, values.size + draw(st.sampled_from([0, 0, 0, -1, 1]))), layout


@settings(max_examples=400, deadline=None)
@given(hostile())
def test_all_backends_agree_on_hostile_bytes(given_bytes):
    payload, count, layout = given_bytes
    for operation in (
        lambda b: outcome(b.check, payload, count, layout),
        lambda b: outcome(b.decode, payload, count, 4, layout),
    ):
        assert len({operation(backend) for backend in BACKENDS.values()}) == 1


@every_backend
@settings(max_examples=200, deadline=None)
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
    for layout, precision in zip_longest(LAYOUTS, PRECISIONS, fillvalue="pairs"):
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


@every_backend
@thorough
@given(data=st.data(), precision=st.sampled_from(PRECISIONS), layout=st.sampled_from(LAYOUTS))
def test_add_adds_the_weighted_integers(backend, data, precision, layout):
    values = data.draw(arrays(precision))
    weight = data.draw(st.integers(1, 1 << 20))
    total = np.arange(values.size, dtype=np.float64)
    backend.add(backend.encode(values, precision, layout), float(weight), total, layout)
    integers = backend.quantise(values, precision).tolist()
    assert total.tolist() == [i + weight * q for i, q in enumerate(integers)]


@every_backend
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), order=st.permutations(range(12)))
def test_sums_on_the_grid_do_not_depend_on_the_order_of_arrival(backend, seed, order):
    rng = np.random.default_rng(seed)
    updates = [
        (backend.encode(float32(rng.normal(0.0, 0.05, 200)), 4), float(rng.integers(1, 1 << 20)))
        for _ in order
    ]
    totals = []
    for arrival in (range(12), order):
        total = np.zeros(200)
        for client in arrival:
            backend.add(*updates[client], total)
        totals.append(total.tobytes())
    assert totals[0] == totals[1]


@every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_sums_are_kept_in_float64(backend, dtype):
    with pytest.raises(WireError, match="total must be"):
        backend.add(b"??", 1.0, np.zeros(2, dtype))


@every_backend
def test_a_read_only_sum_is_refused(backend):
    total = np.zeros(2)
    total.flags.writeable = False
    with pytest.raises(WireError, match="total must be writable"):
        backend.add(b"??", 1.0, total)


@every_backend
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_payloads_may_be_any_bytes(backend, kind):
    payload = kind(backend.encode(float32([0.5, -0.25, 1.0]), 4))
    assert backend.decode(payload, 3, 4).tolist() == [0.5, -0.25, 1.0]
    backend.check(payload, 3)


@every_backend
@every_layout
def test_size_bounds_hold_the_shortest_and_the_longest_payload(backend, layout):
    top = limit(4)
    for count in range(6):
        fewest, most = polyline.size_bounds(count, layout)
        assert len(backend.encode(np.zeros(count, np.float32), 4, layout)) == fewest
        assert len(backend.encode(float32([top, top, -top, -top, top][:count]), 4, layout)) <= most


def test_the_fastest_backend_is_the_default():
    assert polyline.backend == next(iter(BACKENDS))
    assert list(BACKENDS)[-1] == "numpy"
