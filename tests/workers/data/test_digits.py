import hashlib
from importlib import resources

import numpy as np

from workers.data.digits import load_digits


def test_the_shipped_file_is_the_published_one():
    content = resources.files("workers.data").joinpath("embedded/digits.csv.gz").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert digest == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


def test_the_source_is_named_beside_the_file():
    notice = resources.files("workers.data").joinpath("embedded/NOTICE.txt").read_text("utf-8")
    assert "Alpaydin" in notice
    assert "CC BY 4.0" in notice


def test_there_are_1797_digits_of_8x8_pixels_in_17_grey_levels():
    digits = load_digits()
    assert digits.images.shape == (1797, 1, 8, 8)
    assert (digits.images.min(), digits.images.max(), digits.max_value) == (0, 16, 16)
    assert digits.test is None


def test_every_class_has_its_known_number_of_images():
    counts = np.bincount(load_digits().labels)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_first_image_is_a_zero():
    digits = load_digits()
    assert digits.labels[0] == 0
    assert digits.images[0, 0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
