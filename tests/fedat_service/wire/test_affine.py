import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedat_service.errors import WireError
from fedat_service.wire import affine

ELEMENTS = st.one_of(st.floats(-(2.0**60), 2.0**60, width=32), st.floats(-2, 2, width=32))
FLOATS = hnp.arrays(np.float32, st.integers(1, 40), elements=ELEMENTS)
CONSTANT = np.float32(0.001)


def payload(scale, mean, zero_point, *q):
    return struct.pack(f"<ffb{len(q)}b", scale, mean, zero_point, *q)


def travelled(values):
    return affine.decode(affine.encode(values), values.size)


def test_values_are_rounded_to_the_golden_grid(golden):
    case = golden("fedtorch_affine8")
    outputs = case["outputs"]
    grid, q = affine.quantise(np.array(case["inputs"]["x"]))
    assert (grid.scale, grid.mean) == pytest.approx((outputs["scale"], outputs["mean"]), rel=case["rtol"])
    assert (grid.zero_point, q.tolist()) == (outputs["zero_point"], outputs["q"])
    assert affine.dequantise(grid, q).tolist() == pytest.approx(outputs["dequantised"], rel=case["rtol"])


def test_the_golden_values_travel_in_eight_bits_and_a_head(golden):
    case = golden("fedtorch_affine8")
    outputs = case["outputs"]
    x = np.array(case["inputs"]["x"], np.float32)
    encoded = affine.encode(x)
    scale, mean, *integers = struct.unpack("<ff6b", encoded)
    assert (scale, mean) == pytest.approx((outputs["scale"], outputs["mean"]), rel=1e-6)
    assert integers == [outputs["zero_point"], *outputs["q"]]
    assert 8 * (len(encoded) - 9) == case["inputs"]["bits"] * x.size
    assert travelled(x).tolist() == pytest.approx(outputs["dequantised"], abs=1e-7)


def test_a_zero_point_above_0_loses_its_fraction_too():
    # The golden values, negated: -128 + 255 * 0.88 / 1.5 = 21.6, so that -1 is found a step short of -128.6.
    grid, q = affine.quantise(np.array([0.5, 0.1, 0.0, -0.2, -1.0]))
    assert (grid.zero_point, q.tolist()) == (21, [126, 58, 41, 7, -128])


@given(FLOATS)
def test_no_value_is_a_step_off_and_only_ends_more_than_half_of_one(values):
    grid, q = affine.quantise(values)
    off = np.abs(travelled(values).astype(np.float64) - values)
    # What arrives is a float32, too.
    unit = float(np.spacing(np.abs(values).max()))
    assert (off <= 1.0001 * grid.scale + unit).all()
    inside = (q > -128) & (q < 127)
    assert (off[inside] <= 0.5001 * grid.scale + unit).all()


@given(FLOATS)
def test_larger_values_arrive_no_smaller(values):
    assert (np.diff(travelled(np.sort(values))) >= 0).all()


@given(FLOATS)
def test_a_grid_has_256_places_from_the_smallest_value_to_the_largest(values):
    grid, q = affine.quantise(values)
    if grid.scale != CONSTANT:
        assert grid.scale * 255 == pytest.approx(float(values.max()) - float(values.min()), rel=1e-6)
        assert q.min() <= -127
        assert q.max() >= 126


@given(st.floats(-(2.0**125), 2.0**125, width=32), st.integers(1, 40))
def test_equal_values_arrive_as_they_are(value, count):
    assert travelled(np.full(count, value, np.float32)).tolist() == [value] * count


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(0, 2.0**-119, width=32)))
def test_values_too_near_each_other_for_a_scale_arrive_as_their_mean(values):
    encoded = affine.encode(values)
    assert encoded[9:] == bytes([128]) * values.size
    assert np.abs(travelled(values) - values).max() <= 2.0**-119


@given(FLOATS)
def test_what_travels_is_what_was_quantised(values):
    grid, q = affine.quantise(values)
    assert affine.encode(values) == payload(grid.scale, grid.mean, grid.zero_point, *q.tolist())
    assert travelled(values).tolist() == affine.dequantise(grid, q).astype(np.float32).tolist()


def test_blocks_join_without_a_seam():
    values = np.random.default_rng(1).standard_normal(100_003).astype(np.float32)
    grid, q = affine.quantise(values)
    assert affine.encode(values) == payload(grid.scale, grid.mean, grid.zero_point, *q.tolist())
    assert travelled(values).tolist() == affine.dequantise(grid, q).astype(np.float32).tolist()


def test_adding_is_decoding_times_the_weight():
    values = np.linspace(-1, 1, 70_000, dtype=np.float32)
    total = np.ones(values.size)
    affine.add(affine.encode(values), 3.0, total)
    assert total.tolist() == (1 + 3.0 * travelled(values).astype(np.float64)).tolist()


@given(FLOATS)
def test_the_size_is_a_head_and_a_byte_an_element(values):
    assert len(affine.encode(values)) == affine.size_bytes(values.size) == 9 + values.size


def test_no_values_are_a_head():
    encoded = affine.encode(np.zeros(0, np.float32))
    assert len(encoded) == affine.size_bytes(0) == 9
    affine.check(encoded, 0)
    assert affine.decode(encoded, 0).tolist() == []


def test_written_bytes_are_read():
    data = b"\0\0\0\x3f" + b"\0\0\x80\x3f" + b"\xfe" + b"\x80\xfe\x00\x7f"
    assert data == payload(0.5, 1.0, -2, -128, -2, 0, 127)
    assert affine.decode(data, 4).tolist() == [-62.0, 1.0, 2.0, 65.5]


BOUND = r"8.50706e\+37"
HOSTILE = {
    "nothing": (b"", "1 values take 10 bytes, got 0"),
    "short": (payload(1, 0, 0), "1 values take 10 bytes, got 9"),
    "long": (payload(1, 0, 0, 5, 5), "1 values take 10 bytes, got 11"),
    "no number as scale": (
        payload(math.nan, 0, 0, 5),
        f"a scale must be from 1.17549e-38 to {BOUND}, got nan",
    ),
    "infinite scale": (payload(math.inf, 0, -128, -128), "a scale must be .*, got inf"),
    "scale 0": (payload(0, 0, 0, 5), "a scale must be .*, got 0.0"),
    "negative scale": (payload(-1, 0, 0, 5), "a scale must be .*, got -1.0"),
    "scale below float32's digits": (payload(1e-38, 0, 0, 5), "a scale must be .*, got 9.99"),
    "scale too large": (payload(1e38, 0, -128, -128), "a scale must be .*, got 9.99"),
    "no number as mean": (payload(1, math.nan, 0, 5), f"a mean must be from -{BOUND} to {BOUND}, got nan"),
    "infinite mean": (payload(1, -math.inf, 0, 5), "a mean must be .*, got -inf"),
    "mean too large": (payload(1, 1e38, 0, 5), "a mean must be .*, got 9.99"),
    "first value too small": (payload(1e36, 0, 127, 5), f"values must be from -{BOUND} to {BOUND}, got -2.5"),
    "last value too large": (payload(1e36, 0, -128, 5), "values must be .*, got 0.0 to 2.5"),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_damaged_payload_is_refused(data, reason):
    for read in (affine.decode, affine.check):
        with pytest.raises(WireError, match=reason):
            read(data, 1)
    with pytest.raises(WireError, match=reason):
        affine.add(data, 1.0, np.zeros(1))


HEADS = st.tuples(st.floats(width=32), st.floats(width=32), st.integers(-128, 127)).map(lambda h: payload(*h))


@given(st.one_of(st.binary(min_size=9, max_size=9), HEADS), st.binary(max_size=6), st.integers(0, 6))
def test_any_bytes_are_values_that_a_model_can_take_or_refused(head, q, count):
    def refuses(read):
        try:
            read()
        except WireError:
            return True
        return False

    data = head + q
    ways = (
        lambda: affine.decode(data, count),
        lambda: affine.check(data, count),
        lambda: affine.add(data, 1.0, np.zeros(count)),
    )
    refused = {refuses(way) for way in ways}
    assert len(refused) == 1
    if refused == {False}:
        largest = np.full(count, affine.MAX_VALUE, np.float32)
        assert len(q) == count
        assert np.isfinite(largest + affine.decode(data, count)).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, -3e38])
def test_values_out_of_range_are_refused(value):
    for values in ([value], [0.0, value], [value, 0.0]):
        with pytest.raises(
            WireError, match=r"values must be from -8.5.* to 8.5.*, got .*(nan|inf|3\.0.*e\+38)"
        ):
            affine.encode(np.array(values, np.float32))


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1, 1, width=32)))
def test_models_within_the_range_have_differences_that_travel(shares):
    largest = np.float32(affine.Affine8().largest)
    values = largest * shares
    affine.check(affine.encode(np.append(values - -largest, values - largest)), 2 * values.size)


def test_a_negative_count_is_refused():
    with pytest.raises(WireError, match="got -1"):
        affine.size_bytes(-1)
