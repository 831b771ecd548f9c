import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedat_service.errors import WireError
from fedat_service.wire.polyline import BACKENDS, PRECISIONS

every_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
thorough = settings(max_examples=60, deadline=None)
VALUES = st.floats(-8, 8, width=32)
PAIRS = st.integers(0, 40).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float32, n, elements=VALUES), hnp.arrays(np.float32, n, elements=VALUES)
    )
)


LAYOUTS = ("plain", "flat", "pairs")


def float32(values):
    return np.asarray(values, np.float32)


@every_backend
@thorough
@given(pair=PAIRS, precision=st.sampled_from(PRECISIONS), layout=st.sampled_from(LAYOUTS))
def test_what_is_restored_is_what_the_values_decode_to_bit_for_bit(backend, pair, precision, layout):
    values, base = pair
    payload = backend.encode_from(values, base, precision, layout)
    restored = backend.decode_from(payload, base, precision, layout)
    expected = backend.decode(backend.encode(values, precision), values.size, precision)
    # Nothing is 0 with a sign.
    assert restored.tobytes() == (expected + np.float32(0)).tobytes()
    total = backend.quantise(base, precision) * 3.0
    backend.add(payload, 3.0, total, layout)
    assert total.tolist() == (3.0 * backend.quantise(values, precision)).tolist()


@given(pair=PAIRS, precision=st.sampled_from(PRECISIONS), layout=st.sampled_from(LAYOUTS))
def test_all_backends_give_the_same_differences(pair, precision, layout):
    assert len({backend.encode_from(*pair, precision, layout) for backend in BACKENDS.values()}) == 1


@every_backend
def test_a_value_that_did_not_move_is_one_character(backend):
    values = float32([1000.0, -1000.0, 0.5])
    assert backend.encode_from(values, values, 4, "plain") == b"???"


@every_backend
def test_values_that_move_alike_are_one_character_each_after_the_first_when_flat(backend):
    base = float32([1.0, -2.0, 0.5, 7.0])
    moved = base + np.float32(0.01)
    assert len(backend.encode_from(moved, base, 4, "flat")) == 2 + 3
    assert len(backend.encode_from(moved, base, 4, "plain")) == 4 * 2


@every_backend
@pytest.mark.parametrize(("value", "fits"), [(16_777.0, True), (-16_777.0, True), (16_778.0, False)])
def test_integers_that_float32_does_not_have_are_left_to_the_values(backend, value, fits):
    assert (backend.encode_from(float32([value]), float32([0]), 3, "flat") is not None) == fits


@every_backend
def test_values_out_of_range_are_refused(backend):
    with pytest.raises(WireError, match="at index 1"):
        backend.encode_from(float32([0, np.nan]), float32([0, 0]), 4, "plain")


@every_backend
@pytest.mark.parametrize("payload", [b"?", b"???", b"?_", b"? "])
def test_damaged_differences_are_refused(backend, payload):
    with pytest.raises(WireError):
        backend.decode_from(payload, float32([1, 2]), 4, "plain")
