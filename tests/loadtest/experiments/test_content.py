import os

import pytest

from fedat_service.errors import ConfigError, DataMissing
from loadtest.experiments.content import content_of, digest, require_same_content
from loadtest.experiments.settings import ExperimentSettings


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "set" / "train" / "cat").mkdir(parents=True)
    (tmp_path / "set" / "train" / "cat" / "a.png").write_bytes(b"one")
    return tmp_path / "set"


@pytest.mark.parametrize("data", ["digits", "fashion-mnist", "my_module:load"])
def test_what_comes_with_a_name_has_no_files_of_the_users(data):
    assert content_of(ExperimentSettings(data=data, latency="fedat")) == {}


def test_files_are_found_where_the_clients_find_them(folder, tmp_path):
    (tmp_path / "trace.csv").write_text("0,1.5\n")
    settings = ExperimentSettings(data="set", data_dir=tmp_path, latency=f"trace:{tmp_path / 'trace.csv'}")
    assert content_of(settings) == {"data": digest(folder), "latency": digest(tmp_path / "trace.csv")}


def test_data_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataMissing, match="no image folder or zip"):
        content_of(ExperimentSettings(data="set.zip", data_dir=tmp_path))


def test_a_folder_is_the_names_and_the_content_of_its_files(folder):
    digests = [digest(folder)]
    image = folder / "train" / "cat" / "a.png"
    image.write_bytes(b"two")
    digests.append(digest(folder))
    image.rename(image.with_name("b.png"))
    digests.append(digest(folder))
    image.write_bytes(b"one")
    digests.append(digest(folder))
    assert len(set(digests)) == 4
    image.with_name("b.png").unlink()
    assert digest(folder) == digests[0]


def test_images_count_wherever_their_folder_is(folder, tmp_path):
    (tmp_path / "linked" / "train").mkdir(parents=True)
    (tmp_path / "linked" / "train" / "cat").symlink_to(folder / "train" / "cat")
    assert digest(tmp_path / "linked") == digest(folder)
    (folder / "train" / "cat" / "a.png").write_bytes(b"two")
    assert digest(tmp_path / "linked") == digest(folder)


def test_what_no_image_is_read_from_does_not_count(folder):
    before = digest(folder)
    (folder / "train" / "cat" / ".DS_Store").write_bytes(b"x")
    (folder / "train" / "cat" / os.fsdecode(b"\xff.txt")).write_bytes(b"x")
    assert digest(folder) == before


def test_a_name_that_is_no_text_has_a_digest_too(folder):
    (folder / "train" / "cat" / os.fsdecode(b"\xff.png")).write_bytes(b"x")
    assert len(digest(folder)) == 64


def test_files_that_changed_while_a_run_went_on_are_named(folder, tmp_path):
    settings = ExperimentSettings(data="set", data_dir=tmp_path)
    before = content_of(settings)
    require_same_content(settings, before)
    (folder / "train" / "cat" / "a.png").write_bytes(b"two")
    with pytest.raises(ConfigError, match="data 'set' changed while the run went on"):
        require_same_content(settings, before)


def test_a_file_is_its_content_alone(tmp_path):
    for name, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).write_bytes(content)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")
