import subprocess
import sys

import pytest
from PIL import Image

from fedat_service.errors import ConfigError, DataMissing, RuleError
from workers.data.catalog import load


@pytest.fixture
def folder(tmp_path):
    """An image folder `tmp_path/pets` with two images."""
    (tmp_path / "pets/train/cat").mkdir(parents=True)
    for name in ("0.png", "1.png"):
        Image.new("L", (8, 8)).save(tmp_path / "pets/train/cat" / name)
    return tmp_path


def test_digits_are_there_on_every_machine():
    assert len(load("digits")) == 1797


def test_a_limit_holds_for_named_sets():
    assert len(load("digits", limit_per_class=3)) == 30


def test_a_path_is_an_image_folder(folder):
    assert len(load(str(folder / "pets"))) == 2


def test_a_relative_path_starts_at_the_data_dir(folder):
    assert len(load("pets", folder, limit_per_class=1)) == 1


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ConfigError, match="'cifar': digits, fashion-mnist, mnist, vader, vader-text, or the path"
    ):
        load("cifar")


@pytest.mark.parametrize("name", ["no/such/folder", "missing.zip", "."])
def test_a_path_without_images_is_missing_data(tmp_path, name):
    with pytest.raises(DataMissing, match="must hold train/<class>"):
        load(name, tmp_path)


def test_a_limit_below_one_is_refused():
    with pytest.raises(RuleError, match="got 0"):
        load("digits", limit_per_class=0)


def test_data_and_latency_do_without_torch():
    code = "import sys, workers.data.catalog, workers.data.partition_setting, workers.latency\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
