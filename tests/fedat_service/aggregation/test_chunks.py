import pytest

from fedat_service.aggregation.chunks import CHUNK, chunks


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_parts_cover_a_vector_once_in_order(size):
    assert [i for part in chunks(size) for i in range(size)[part]] == list(range(size))


def test_no_part_is_longer_than_a_chunk():
    assert max(len(range(3 * CHUNK + 1)[part]) for part in chunks(3 * CHUNK + 1)) == CHUNK
