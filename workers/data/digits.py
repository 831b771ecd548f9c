"""The digits that are shipped with the package (source and licence: embedded/NOTICE.txt)."""

import gzip
from importlib import resources

import numpy as np

from workers.data.dataset import Dataset


def load_digits() -> Dataset:
    """Load 1,797 handwritten digits of 8x8 pixels with values 0..16; one pool, no test split.

    Alpaydin & Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998), via scikit-learn.
    """
    packed = resources.files("workers.data").joinpath("embedded/digits.csv.gz").read_bytes()
    rows = np.loadtxt(gzip.decompress(packed).decode().splitlines(), dtype=np.uint8, delimiter=",")
    images = np.ascontiguousarray(rows[:, :64]).reshape(-1, 1, 8, 8)
    return Dataset("digits", images, rows[:, 64].astype(np.int64), num_classes=10, max_value=16)
