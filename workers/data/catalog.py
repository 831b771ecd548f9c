"""Data sets by name. Nothing is downloaded: what is missing is named, with the command that gets it."""

from pathlib import Path

from fedat_service.errors import ConfigError, DataMissing
from workers.data.dataset import Dataset
from workers.data.digits import load_digits
from workers.data.folder import is_image_folder, load_image_folder
from workers.data.idx import IDX_SETS, load_idx_set
from workers.data.vader import load_vader, load_vader_text

_VADER_SETS = {"vader": load_vader, "vader-text": load_vader_text}

NAMES = ("digits", *IDX_SETS, *_VADER_SETS)
"""Data sets that have a name; every other set is a path."""


def load(name: str, data_dir: Path | None = None, limit_per_class: int | None = None) -> Dataset:
    """Load a data set.

    Args:
        name: ``digits`` (shipped with us), ``fashion-mnist``, ``mnist``, ``vader`` (sentences as bags of
            words), ``vader-text`` (as characters, of which the next is told), or the path of an image folder
            or of a zip of one: ``train/<class>/*.jpg`` and, if there is one, ``test/<class>/*.jpg``.
        data_dir: The only folder to look in, instead of the usual places; relative paths start here.
        limit_per_class: Keep only the first examples of every class; an image folder decodes only these.

    Raises:
        ConfigError: If there is no data set of that name.
        DataMissing: If the set is not on this machine; the message says how to get it.
        DataDamaged: If a file is not what it should be.
        RuleError: If `limit_per_class` is not positive.
    """
    if name == "digits":
        dataset = load_digits()
    elif name in IDX_SETS:
        dataset = load_idx_set(name, data_dir)
    elif name in _VADER_SETS:
        dataset = _VADER_SETS[name](data_dir)
    else:
        return load_image_folder(_existing(name, data_dir), limit_per_class)
    return dataset if limit_per_class is None else dataset.first_per_class(limit_per_class)


def path_of(name: str, data_dir: Path | None = None) -> Path | None:
    """Where the image folder or zip of this name is; None for one of `NAMES`.

    Raises:
        ConfigError: If there is no data set of that name.
        DataMissing: If it is not on this machine.
    """
    return None if name in NAMES else _existing(name, data_dir)


def _existing(name: str, data_dir: Path | None) -> Path:
    path = (data_dir or Path()) / name
    if is_image_folder(path):
        return path
    if path.exists() or Path(name).name != name or path.suffix == ".zip":
        raise DataMissing(f"no image folder or zip at {path}: it must hold train/<class>/*.jpg")
    raise ConfigError(f"unknown data set {name!r}: {', '.join(NAMES)}, or the path of an image folder or zip")
