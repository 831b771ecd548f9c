"""Images in folders named after their class, on disk or in a zip."""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedat_service.errors import DataDamaged, DataMissing, RuleError
from workers.data.dataset import Dataset

_IMAGE = re.compile(r"(?P<split>train|test)/(?P<label>[^/]+)/[^/]+\.(?i:jpe?g|png)")
_FORMATS = ("JPEG", "PNG")
_MAX_FILE_BYTES = 1 << 26

_Read = Callable[[str], bytes]
_Files = dict[str, list[str]]


def is_image_folder(path: Path) -> bool:
    """Tell whether `path` is a folder with a ``train`` folder in it, or a file that is a zip by its name."""
    return (path / "train").is_dir() or (path.suffix == ".zip" and path.is_file())


def load_image_folder(path: Path, limit_per_class: int | None = None) -> Dataset:
    """Load ``train/<class>/*.jpg`` (and ``.png``) and, if it is there, ``test/<class>/*.jpg``.

    Classes are numbered in the order of their names, images stand in the order of theirs. All images must
    have one size; greyscale images give one channel, all others three. Every image is decoded once, here
    (about 0.2 ms for a JPEG of 32x32 pixels), so `limit_per_class` makes a first try quick.

    Args:
        path: The folder, or a zip that holds ``train/`` at its top.
        limit_per_class: Read only the first so many images of every class.

    Raises:
        DataMissing: If there is no image under ``train/``.
        DataDamaged: If a file is no image, or its size or number of channels differs from the first one's.
        RuleError: If `limit_per_class` is not positive.
    """
    if limit_per_class is not None and limit_per_class < 1:
        raise RuleError(f"the limit per class must be 1 or more, got {limit_per_class}")
    if path.is_dir():
        return _load(path, names_in(path), lambda name: (path / name).read_bytes(), limit_per_class)
    with _open_zip(path) as archive:
        return _load(path, archive.namelist(), partial(_unzip, archive), limit_per_class)


def names_in(folder: Path) -> list[str]:
    """Names of a folder's images, below the folder and in order; whatever else is there is not read."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.glob("*/*/*"))
    return [name for name in names if _IMAGE.fullmatch(name)]


def _load(path: Path, names: list[str], read: _Read, limit: int | None) -> Dataset:
    files = _files(names)
    train, test = files["train"], files["test"]
    if not train:
        raise DataMissing(f"{path} has no images: it must hold train/<class>/*.jpg")
    if unknown := set(test).difference(train):
        raise DataDamaged(f"{path}: class {min(unknown)!r} is in test but not in train")
    classes = sorted(train)
    split = _decode(path.stem, classes, test, read, limit) if test else None
    return _decode(path.stem, classes, train, read, limit, split)


def _files(names: Iterable[str]) -> dict[str, _Files]:
    """Names of the images by split and class, in order."""
    files: dict[str, _Files] = {"train": {}, "test": {}}
    for match in map(_IMAGE.fullmatch, sorted(names)):
        if match is not None:
            files[match["split"]].setdefault(match["label"], []).append(match[0])
    return files


def _decode(
    name: str, classes: list[str], files: _Files, read: _Read, limit: int | None, test: Dataset | None = None
) -> Dataset:
    chosen = [(label, file) for label, c in enumerate(classes) for file in islice(files.get(c, ()), limit)]
    first = _pixels(chosen[0][1], read)
    images = np.empty((len(chosen), *first.shape), np.uint8)
    for row, (_, file) in zip(images, chosen, strict=True):
        pixels = _pixels(file, read)
        if pixels.shape != row.shape:
            raise DataDamaged(f"{file}: shape {pixels.shape} (C, H, W), but the first image has {row.shape}")
        row[:] = pixels
    labels = np.array([label for label, _ in chosen], np.int64)
    return Dataset(name, images, labels, len(classes), test=test)


def _pixels(file: str, read: _Read) -> NDArray[np.uint8]:
    """Decode one image to uint8 of shape ``(C, H, W)``."""
    try:
        with Image.open(io.BytesIO(read(file)), formats=_FORMATS) as image:
            grey = image.mode == "L"
            pixels = np.asarray(image if grey or image.mode == "RGB" else image.convert("RGB"))
    except UnidentifiedImageError as error:
        raise DataDamaged(f"{file} is not a JPEG or PNG image") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataDamaged(f"{file} is not a JPEG or PNG image: {error}") from error
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise DataDamaged(f"{path} is not a zip file: {error}") from error


def _unzip(archive: zipfile.ZipFile, name: str) -> bytes:
    if (size := archive.getinfo(name).file_size) > _MAX_FILE_BYTES:
        raise DataDamaged(f"{archive.filename}: {name} has {size} bytes, over {_MAX_FILE_BYTES}")
    try:
        return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataDamaged(f"{archive.filename}: {name} cannot be read: {error}") from error
