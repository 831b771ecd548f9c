import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.chunks import CHUNK
from fedat_service.aggregation.pieces import float_pieces, require_part
from fedat_service.errors import ManifestError
from fedat_service.params import Manifest, TensorSpec

SIZES = st.lists(
    st.tuples(st.sampled_from([0, 1, 7, CHUNK, CHUNK + 1, 2 * CHUNK + 5]), st.booleans()),
    min_size=1,
    max_size=4,
)


def manifest(sizes):
    return Manifest(tuple(TensorSpec(name, (size,), "float32", name) for name, size in sizes.items()))


@given(SIZES)
def test_pieces_are_the_elements_of_the_part_wherever_they_lie(tensors):
    whole = manifest({f"t{i}": size for i, (size, _) in enumerate(tensors)})
    chosen = {f"t{i}": size for i, (size, due) in enumerate(tensors) if due} or {"t0": tensors[0][0]}
    part = manifest(chosen)
    pieces = list(float_pieces(whole, part, part.tensors))
    here = [i for piece, _ in pieces for i in range(piece.start, piece.stop)]
    there = [i for _, piece in pieces for i in range(piece.start, piece.stop)]
    assert here == [i for name in chosen for i in range(*whole.spans[name].indices(whole.num_floats))]
    assert there == list(range(part.num_floats))
    assert all(0 < piece.stop - piece.start <= CHUNK for piece, _ in pieces)


def test_neighbours_are_one_piece():
    whole = manifest({"a": 2, "b": 3, "c": 4, "d": 5})
    part = manifest({"b": 3, "c": 4})
    assert list(float_pieces(whole, part, part.tensors)) == [(slice(2, 9), slice(0, 7))]


@pytest.mark.parametrize("wrong", [{"a": 3}, {"b": 2}])
def test_a_tensor_that_the_whole_has_not_is_named(wrong):
    with pytest.raises(ManifestError, match=f"no tensor '{next(iter(wrong))}' of shape"):
        require_part(manifest({"a": 2}), manifest(wrong))
