"""What holds of every codec of rounded differences."""

import numpy as np
import pytest

from fedat_service.errors import WireError
from fedat_service.wire import affine, qsgd
from fedat_service.wire.affine import Affine8
from fedat_service.wire.qsgd import Qsgd

VALUES = np.random.default_rng(3).standard_normal(50).astype(np.float32)
BASE = np.random.default_rng(4).standard_normal(50).astype(np.float32)

every_codec = pytest.mark.parametrize("codec", [Qsgd(5), Affine8()], ids=str)


def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (Qsgd(5), qsgd.encode(VALUES - BASE, 5, rng())),
        (Affine8(), affine.encode(VALUES - BASE)),
    ],
    ids=str,
)
def test_differences_to_a_base_are_encoded(codec, expected):
    assert codec.encode_from(VALUES, BASE, rng()) == expected


@every_codec
def test_differences_are_added_to_the_same_base(codec):
    encoded = codec.encode_from(VALUES, BASE, rng())
    assert codec.decode_from(encoded, BASE).tolist() == (BASE + codec.decode(encoded, 50)).tolist()


@every_codec
def test_differences_always_take_as_many_bytes(codec):
    encoded = codec.encode(VALUES, rng())
    assert codec.size_bounds(50) == (len(encoded), len(encoded))


@every_codec
def test_a_sum_with_the_base_is_a_sum_of_what_arrives(codec):
    encoded = codec.encode_from(VALUES, BASE, rng())
    total = 2.0 * codec.scale * codec.on_grid(BASE).astype(float)
    codec.add(encoded, 2.0, total)
    assert total.tolist() == pytest.approx(2.0 * codec.decode_from(encoded, BASE), rel=1e-5)


@every_codec
def test_a_wrong_length_is_refused(codec):
    encoded = codec.encode(VALUES, rng())
    for wrong in (encoded[:-1], encoded + b"\0"):
        for read in (codec.check, codec.decode):
            with pytest.raises(WireError, match=f"got {len(wrong)}"):
                read(wrong, 50)
    codec.check(encoded, 50)


@every_codec
def test_differences_that_are_no_numbers_are_refused(codec):
    far = np.full(50, 3e38, np.float32)
    with pytest.raises(WireError, match="inf"):
        codec.encode_from(far, -far, rng())


@every_codec
def test_models_of_the_largest_size_have_differences_that_travel_and_add_up(codec):
    largest = np.full(50, codec.largest, np.float32)
    values = np.where(np.arange(50) % 7, largest, -largest)
    encoded = codec.encode_from(values, -largest, rng())
    assert np.isfinite(codec.decode_from(encoded, largest)).all()


def test_affine_rounding_does_not_depend_on_the_generator():
    first, other = (Affine8().encode(VALUES, np.random.default_rng(seed)) for seed in (1, 2))
    assert first == other
