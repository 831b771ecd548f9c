from fractions import Fraction
from math import floor

import numpy as np
import polyline as package
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedat_service.errors import WireError
from fedat_service.wire import polyline
from fedat_service.wire.polyline import BACKENDS, PRECISIONS

LAYOUTS = ("pairs", "flat", "plain")

every_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
every_precision = pytest.mark.parametrize("precision", PRECISIONS)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
thorough = settings(max_examples=30, deadline=None)


def float32(values):
    return np.asarray(values, np.float32)


def limit(precision):
    """The largest float32 whose integer is below 2**30."""
    top = np.float32((2**30 - 0.5) / 10**precision)
    while float(top) * 10**precision >= 2**30 - 0.5:
        top = np.nextafter(top, np.float32(0))
    return float(top)


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


@every_backend
@pytest.mark.parametrize(
    "name", ["polyline_google_example", "polyline_weights_p3", "polyline_weights_p4", "polyline_weights_p6"]
)
def test_golden_strings(backend, name, golden):
    case = golden(name)
    # The inputs are float64, with a tie that no float32 holds: encode the grid points they stand for.
    precision, expected = case["inputs"]["precision"], case["outputs"]
    points = float32(expected.get("decoded", case["inputs"]["values"]))
    names = {"pairs": "string"}
    if "q" in expected:
        names = {"pairs": "pairs", "flat": "one_d", "plain": "no_delta"}
        assert backend.quantise(points, precision).tolist() == expected["q"]
    for layout, output in names.items():
        assert backend.encode(points, precision, layout).decode() == expected[output]
        decoded = backend.decode(expected[output].encode(), points.size, precision, layout)
        np.testing.assert_allclose(decoded, points, rtol=case["rtol"])


@every_backend
@thorough
@given(data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_pairs_are_the_bytes_of_the_package(backend, data, precision):
    values = data.draw(arrays(precision))
    assert backend.encode(values, precision, "pairs") == package_encode(values, precision)


@every_backend
@thorough
@given(data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_pairs_decode_to_the_floats_of_the_package(backend, data, precision):
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
@pytest.mark.parametrize("size", [1, 2, 72, 1023, 1025, 40_001])
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
@every_layout
def test_size_bounds_hold_the_shortest_and_the_longest_payload(backend, layout):
    top = limit(4)
    for count in range(6):
        fewest, most = polyline.size_bounds(count, layout)
        assert len(backend.encode(np.zeros(count, np.float32), 4, layout)) == fewest
        assert len(backend.encode(float32([top, top, -top, -top, top][:count]), 4, layout)) <= most


def test_the_fastest_backend_is_the_default():
    assert (polyline.backend, "numpy") == (next(iter(BACKENDS)), list(BACKENDS)[-1])


def test_numpy_serves_where_the_extension_is_not_built(unbuilt):
    bare = unbuilt("fedat_service.wire.polyline", "fedat_service.wire._polyline")
    assert bare.backend == "numpy"
    assert bare.encode(float32([38.5, -120.2]), 5) == b"_p~iF~ps|U"
