import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedat_service.errors import WireError
from fedat_service.wire import qsgd

FLOATS = hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(-(2.0**60), 2.0**60, width=32))
LEVELS = st.one_of(st.integers(1, 40), st.sampled_from([127, 128, 255, 256, 32_767, 32_768, 65_535]))


def payload(norm, codes, levels):
    """Write codes of sign and level as text bits, the slow way."""
    bits = "".join(f"{sign}{level:0{levels.bit_length()}b}" for sign, level in codes)
    bits += "0" * (-len(bits) % 8)
    packed = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    return np.array(norm, "<f4").tobytes() + packed


@pytest.mark.parametrize("case_id", ["qsgd_s4", "qsgd_s16"])
def test_values_are_rounded_to_the_golden_levels(golden, case_id):
    case = golden(case_id)
    x, s = np.array(case["inputs"]["x"]), case["inputs"]["s"]
    norm, signed = qsgd.quantise(x, s, np.array(case["inputs"]["u"]))
    assert norm == pytest.approx(case["outputs"]["norm"], rel=case["rtol"])
    assert np.abs(signed).tolist() == case["outputs"]["levels"]
    q = qsgd.dequantise(norm, signed, s)
    assert q.tolist() == pytest.approx(case["outputs"]["q"], rel=case["rtol"])


def test_the_golden_values_take_the_golden_bits(golden):
    case = golden("qsgd_s16")
    count = len(case["inputs"]["x"])
    assert qsgd.size_bytes(count, 16) == math.ceil(case["outputs"]["naive_bits"] / 8)
    # Eight times as many elements fill whole bytes behind the norm.
    assert 8 * (qsgd.size_bytes(8 * count, 16) - 4) == 8 * (case["outputs"]["naive_bits"] - 32)
    assert 8 * (qsgd.size_bytes(8 * count, 15) - 4) == 8 * (case["outputs"]["gridpoint_rule_bits"] - 32)


def test_the_mean_over_all_uniforms_is_the_golden_expectation(golden):
    case = golden("qsgd_s16")
    x, steps = np.array(case["inputs"]["x"]), 1000
    total = np.zeros(x.size)
    for k in range(steps):
        norm, signed = qsgd.quantise(x, 16, np.full(x.size, (k + 0.5) / steps))
        total += qsgd.dequantise(norm, signed, 16)
    tolerance = case["outputs"]["norm"] / 16 / steps
    assert (total / steps).tolist() == pytest.approx(case["outputs"]["expectation"], abs=tolerance)


def test_fedpaq_averages_quantised_differences_as_in_the_golden_case(golden):
    case = golden("fedpaq_server")
    x, s = np.array(case["inputs"]["x"]), case["inputs"]["s"]
    q = []
    for delta, u in zip(case["inputs"]["deltas"], case["inputs"]["u"], strict=True):
        norm, signed = qsgd.quantise(np.array(delta), s, np.array(u))
        q.append(qsgd.dequantise(norm, signed, s).tolist())
    assert q == [pytest.approx(expected, rel=case["rtol"]) for expected in case["outputs"]["q"]]
    assert (x + np.mean(q, axis=0)).tolist() == pytest.approx(case["outputs"]["x"], rel=case["rtol"])


def test_fedpaq_quantises_the_way_down_as_in_the_golden_case(golden):
    case = golden("fedpaq_bidirectional")
    inputs, outputs = case["inputs"], case["outputs"]
    mean = np.zeros(2)
    for delta, u in zip(inputs["deltas"], inputs["u"], strict=True):
        norm, signed = qsgd.quantise(np.array(delta), inputs["s"], np.array(u))
        mean += qsgd.dequantise(norm, signed, inputs["s"]) / len(inputs["deltas"])
    assert mean.tolist() == pytest.approx(outputs["mean_q"], rel=case["rtol"])
    norm, signed = qsgd.quantise(mean, inputs["s"], np.array(inputs["u_server"]))
    q = qsgd.dequantise(norm, signed, inputs["s"])
    assert q.tolist() == pytest.approx(outputs["q_server"], rel=case["rtol"])
    assert (inputs["x"] + q).tolist() == pytest.approx(outputs["x"], rel=case["rtol"])


@given(FLOATS, st.integers(1, 300))
def test_rounding_is_unbiased_over_all_uniforms(values, levels):
    steps = 64
    total = np.zeros(values.size)
    norm = 0.0
    for k in range(steps):
        norm, signed = qsgd.quantise(values, levels, np.full(values.size, (k + 0.5) / steps))
        total += qsgd.dequantise(norm, signed, levels)
    # So many uniforms name a probability to half their distance.
    assert (np.abs(total / steps - values) <= norm / levels * (0.5 / steps + 1e-9) + 1e-45).all()


@given(FLOATS, LEVELS, st.integers(0, 2**32))
def test_what_is_decoded_is_what_was_quantised(values, levels, seed):
    encoded = qsgd.encode(values, levels, np.random.default_rng(seed))
    norm, signed = qsgd.quantise(values, levels, np.random.default_rng(seed).random(values.size))
    expected = qsgd.dequantise(norm, signed, levels).astype(np.float32)
    assert qsgd.decode(encoded, values.size, levels).tobytes() == (expected + np.float32(0)).tobytes()
    qsgd.check(encoded, values.size, levels)


@given(FLOATS, LEVELS)
def test_the_size_is_the_honest_one(values, levels):
    bits = values.size * (1 + math.ceil(math.log2(levels + 1)))
    expected = 4 + math.ceil(bits / 8)
    assert len(qsgd.encode(values, levels, np.random.default_rng(0))) == expected
    assert qsgd.size_bytes(values.size, levels) == expected


@pytest.mark.parametrize(("levels", "bits"), [(1, 2), (3, 3), (15, 5), (16, 6), (65_535, 17)])
def test_an_element_takes_its_bits(levels, bits):
    assert qsgd.size_bytes(800, levels) == 4 + 100 * bits


@given(FLOATS, LEVELS, st.integers(0, 2**32))
def test_no_value_is_more_than_a_step_off_or_above_the_norm(values, levels, seed):
    decoded = qsgd.decode(qsgd.encode(values, levels, np.random.default_rng(seed)), values.size, levels)
    norm, _ = qsgd.quantise(values, levels, np.zeros(values.size))
    assert (np.abs(decoded.astype(np.float64) - values) <= norm / levels * 1.000001 + 1e-44).all()
    assert (np.abs(decoded) <= norm).all()


def test_blocks_join_without_a_seam():
    values = np.random.default_rng(1).standard_normal(100_003).astype(np.float32)
    encoded = qsgd.encode(values, 16, np.random.default_rng(2))
    norm, signed = qsgd.quantise(values, 16, np.random.default_rng(2).random(values.size))
    codes = [(int(level < 0), abs(level)) for level in signed.tolist()]
    assert encoded == payload(norm, codes, 16)
    expected = qsgd.dequantise(norm, signed, 16).astype(np.float32)
    assert qsgd.decode(encoded, values.size, 16).tolist() == expected.tolist()


def test_the_same_generator_gives_the_same_bytes():
    values = np.linspace(-1, 1, 50, dtype=np.float32)
    first, again, other = (qsgd.encode(values, 3, np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert first == again != other


def test_adding_is_decoding_times_the_weight():
    values = np.linspace(-1, 1, 70_000, dtype=np.float32)
    encoded = qsgd.encode(values, 16, np.random.default_rng(0))
    total = np.ones(values.size)
    qsgd.add(encoded, 3.0, total, 16)
    assert total.tolist() == (1 + 3.0 * qsgd.decode(encoded, values.size, 16).astype(np.float64)).tolist()


def test_no_values_and_zeros_have_norm_0():
    rng = np.random.default_rng(0)
    assert qsgd.encode(np.zeros(0, np.float32), 16, rng) == bytes(4)
    assert qsgd.encode(np.array([0.0, -0.0], np.float32), 16, rng) == bytes(6)
    assert qsgd.decode(bytes(6), 2, 16).tolist() == [0.0, 0.0]


def test_written_bits_are_read():
    data = payload(2.0, [(0, 4), (1, 1), (0, 0), (1, 4)], 4)
    assert qsgd.decode(data, 4, 4).tolist() == [2.0, -0.5, 0.0, -2.0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (payload(1.0, [(0, 1)], 4)[:-1], "1 values of 4 levels take 5 bytes, got 4"),
        (payload(1.0, [(0, 1)], 4) + b"\0", "1 values of 4 levels take 5 bytes, got 6"),
        (payload(math.nan, [(0, 1)], 4), "a norm must be from 0 to 8.50706e[+]37, got nan"),
        (payload(math.inf, [(0, 1)], 4), "a norm must be from 0 to 8.50706e[+]37, got inf"),
        (payload(-1.0, [(0, 1)], 4), "a norm must be from 0 to 8.50706e[+]37, got -1.0"),
        (payload(-0.0, [(0, 0)], 4), "a norm must be from 0 to 8.50706e[+]37, got -0.0"),
        (payload(1.0, [(0, 5)], 4), "code 0x5 has no place in 4 levels of norm 1"),
        (payload(1.0, [(1, 7)], 4), "code 0xf has no place in 4 levels"),
        (payload(1.0, [(1, 0)], 4), "where 0 has no sign"),
        (payload(0.0, [(0, 1)], 4), "code 0x1 has no place in 4 levels of norm 0"),
        (payload(1.0, [(0, 1)], 4)[:-1] + b"\x11", "the last 4 bits of a payload must be zero"),
        (b"", "got 0"),
    ],
)
def test_a_damaged_payload_is_refused(data, reason):
    for read in (qsgd.decode, qsgd.check):
        with pytest.raises(WireError, match=reason):
            read(data, 1, 4)
    with pytest.raises(WireError, match=reason):
        qsgd.add(data, 1.0, np.zeros(1), 4)


@given(st.binary(min_size=4, max_size=12), LEVELS)
def test_any_bytes_are_finite_values_or_refused(data, levels):
    count = 8 * (len(data) - 4) // (1 + levels.bit_length())
    try:
        values = qsgd.decode(data, count, levels)
    except WireError:
        return
    assert np.isfinite(values).all()
    # Two payloads never stand for one tensor: these values give these bytes and no others.
    norm = float(np.frombuffer(data, "<f4", 1)[0])
    level = np.rint(np.abs(values, dtype=float) * levels / norm).astype(int) if norm > 1e-30 else None
    if level is not None:
        codes = [(int(v < 0), n) for v, n in zip(values.tolist(), level.tolist(), strict=True)]
        assert payload(norm, codes, levels) == data


@pytest.mark.parametrize("levels", [0, -1, 65_536, True, 4.0])
def test_levels_out_of_range_are_refused(levels):
    for use in (
        lambda: qsgd.quantise(np.ones(1), levels, np.zeros(1)),
        lambda: qsgd.encode(np.ones(1, np.float32), levels, np.random.default_rng(0)),
        lambda: qsgd.decode(bytes(5), 1, levels),
        lambda: qsgd.size_bytes(1, levels),
        lambda: qsgd.Qsgd(levels),
    ):
        with pytest.raises(WireError, match=f"levels must be 1..65535, got {levels}") as refusal:
            use()
        assert refusal.value.field == "levels"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_values_without_a_norm_are_refused(value):
    values = np.array([value, value], np.float32)
    with pytest.raises(WireError, match=r"the norm of the values is (nan|inf), it must be at most"):
        qsgd.encode(values, 16, np.random.default_rng(0))


def test_no_norm_beyond_the_bound_travels():
    values = np.full(1, qsgd.MAX_NORM, np.float32)
    encoded = qsgd.encode(values, 1, np.random.default_rng(0))
    assert qsgd.decode(encoded, 1, 1).tolist() == [qsgd.MAX_NORM]
    with pytest.raises(WireError, match="it must be at most"):
        qsgd.encode(values * np.float32(1.01), 1, np.random.default_rng(0))
    with pytest.raises(WireError, match="a norm must be from 0"):
        qsgd.check(payload(1.01 * qsgd.MAX_NORM, [(0, 1)], 1), 1, 1)


def test_models_within_the_range_differ_by_no_larger_norm():
    largest = qsgd.Qsgd(16).largest
    assert 2 * largest * math.sqrt(2**34) <= qsgd.MAX_NORM


def test_every_value_needs_its_uniform():
    with pytest.raises(WireError, match="2 values need as many uniforms, got 3"):
        qsgd.quantise(np.ones(2), 4, np.zeros(3))


def test_a_negative_count_is_refused():
    with pytest.raises(WireError, match="got -1"):
        qsgd.decode(bytes(4), -1, 16)
