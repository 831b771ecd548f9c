import gzip
import hashlib
import struct

import numpy as np
import pytest

from fedat_service.errors import DataDamaged, DataMissing
from workers.data import idx
from workers.data.idx import load_idx_set, read_idx

VALUES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
FILES = {
    "train-images-idx3-ubyte": VALUES,
    "train-labels-idx1-ubyte": np.array([3, 9], np.uint8),
    "t10k-images-idx3-ubyte": VALUES[:1],
    "t10k-labels-idx1-ubyte": np.array([1], np.uint8),
}


def _idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def tiny_mnist(monkeypatch):
    """The set that `FILES` make, under the name of MNIST."""
    digests = tuple(hashlib.sha256(_idx(array)).hexdigest() for array in FILES.values())
    monkeypatch.setitem(idx.IDX_SETS, "mnist", idx.IdxSet("MNIST", (), "run: get-mnist", digests))


def _write(folder, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in FILES.items():
        if packed:
            (folder / f"{stem}.gz").write_bytes(gzip.compress(_idx(array)))
        else:
            (folder / stem).write_bytes(_idx(array))


def test_a_file_is_read_plain_and_gzipped(tmp_path):
    (tmp_path / "a").write_bytes(_idx(VALUES))
    (tmp_path / "a.gz").write_bytes(gzip.compress(_idx(VALUES)))
    np.testing.assert_array_equal(read_idx(tmp_path / "a"), VALUES)
    np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), VALUES)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not an idx file"),
        (b"GIF89a", "not an idx file"),
        (b"\0\0\x0d\x01\0\0\0\0", "not an idx file"),
        (b"\0\0\x08\x09" + bytes(36), "not an idx file"),
        (b"\0\0\x08\x03\0\0", "cut short"),
        (_idx(VALUES)[:-1], "cut short or too long: 23 bytes"),
        (_idx(VALUES) + b"!", "cut short or too long: 25 bytes"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "cut short or too long: 0 bytes"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, content, complaint):
    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(DataDamaged, match=f"broken.*{complaint}"):
        read_idx(tmp_path / "broken")


@pytest.mark.parametrize(
    "content", [b"no gzip at all", gzip.compress(_idx(VALUES))[:-9], b"\x1f\x8b\x08\0abc"]
)
def test_a_gzip_that_does_not_unpack_is_named(tmp_path, content):
    (tmp_path / "broken.gz").write_bytes(content)
    with pytest.raises(DataDamaged, match=r"broken\.gz does not unpack"):
        read_idx(tmp_path / "broken.gz")


def test_a_gzip_that_unpacks_to_too_much_is_refused(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes((1 << 26) + 1), compresslevel=1))
    with pytest.raises(DataDamaged, match=r"bomb\.gz holds more than"):
        read_idx(tmp_path / "bomb.gz")


@pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw", "package/data"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_four_files_are_found_in_the_layouts_of_their_distributors(tmp_path, tiny_mnist, place, packed):
    _write(tmp_path / place, packed)
    dataset = load_idx_set("mnist", tmp_path)
    np.testing.assert_array_equal(dataset.images, VALUES[:, None])
    assert dataset.labels.tolist() == [3, 9]
    assert dataset.test.labels.tolist() == [1]


def test_one_flipped_byte_is_noticed(tmp_path, tiny_mnist):
    _write(tmp_path)
    flipped = VALUES.copy()
    flipped[0, 0, 0] ^= 1
    (tmp_path / "train-images-idx3-ubyte").write_bytes(_idx(flipped))
    with pytest.raises(DataDamaged, match="train-images-idx3-ubyte is not the published file"):
        load_idx_set("mnist", tmp_path)


def test_a_place_that_lacks_a_file_is_no_place_and_the_error_says_how_to_get_the_set(tmp_path, tiny_mnist):
    _write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataMissing, match=rf"mnist is not in {tmp_path}; run: get-mnist"):
        load_idx_set("mnist", tmp_path)


def test_without_a_folder_the_usual_places_are_searched(tmp_path, tiny_mnist):
    with pytest.raises(DataMissing, match="mnist is not on this machine"):
        load_idx_set("mnist")


def test_the_debian_command_is_named_for_fashion_mnist(tmp_path):
    with pytest.raises(DataMissing, match="apt-get install dataset-fashion-mnist"):
        load_idx_set("fashion-mnist", tmp_path)


def test_fashion_mnist_is_complete(fashion_mnist):
    assert fashion_mnist.images.shape == (60_000, 1, 28, 28)
    assert np.bincount(fashion_mnist.labels).tolist() == [6000] * 10
    assert np.bincount(fashion_mnist.test.labels).tolist() == [1000] * 10
    assert fashion_mnist.images.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
