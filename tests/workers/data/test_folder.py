import io
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedat_service.errors import DataDamaged, DataMissing, RuleError
from workers.data.folder import load_image_folder


def _png(value, mode="RGB", size=(4, 3)):
    file = io.BytesIO()
    Image.new(mode, size, value).save(file, "PNG")
    return file.getvalue()


FILES = {
    "train/cat/b.png": _png((2, 0, 0)),
    "train/cat/a.png": _png((1, 0, 0)),
    "train/ape/0.png": _png((0, 7, 0)),
    "train/ape/notes.txt": b"not looked at",
    "train/loose.png": b"not looked at",
    "test/cat/0.png": _png((0, 0, 9)),
}


def _folder(path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def _zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(params=["folder", "zip"])
def store(request, tmp_path):
    """Writes files as a folder or as a zip."""
    if request.param == "folder":
        return lambda files: _folder(tmp_path / "set", files)
    return lambda files: _zip(tmp_path / "set.zip", files)


def test_classes_and_images_stand_in_the_order_of_their_names(store):
    dataset = load_image_folder(store(FILES))
    assert dataset.images.shape == (3, 3, 3, 4)
    assert dataset.labels.tolist() == [0, 1, 1]
    assert dataset.images[:, :, 0, 0].tolist() == [[0, 7, 0], [1, 0, 0], [2, 0, 0]]
    assert (dataset.name, dataset.num_classes, dataset.max_value) == ("set", 2, 255)


def test_a_test_folder_is_the_sets_own_test_split(store):
    test = load_image_folder(store(FILES)).test
    assert (test.labels.tolist(), test.images[0, :, 0, 0].tolist()) == ([1], [0, 0, 9])


def test_a_test_folder_may_be_absent(store):
    assert load_image_folder(store({"train/cat/a.png": _png(0)})).test is None


def test_a_limit_takes_the_first_images_of_every_class_and_reads_no_others(store):
    dataset = load_image_folder(store({**FILES, "train/cat/c.png": b"no image"}), limit_per_class=1)
    assert dataset.images[:, :, 0, 0].tolist() == [[0, 7, 0], [1, 0, 0]]


def test_grey_images_have_one_channel_and_others_three(store):
    assert load_image_folder(store({"train/a/0.png": _png(5, "L")})).input_shape == (1, 3, 4)


def test_a_palette_is_turned_into_colours(store):
    assert load_image_folder(store({"train/a/0.png": _png(0, "P")})).input_shape == (3, 3, 4)


def test_jpeg_is_read_too(store):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 200, 200)).save(file, "JPEG")
    images = load_image_folder(store({"train/a/0.jpg": file.getvalue()})).images
    np.testing.assert_allclose(images, 200, atol=3)


@pytest.mark.parametrize("content", [b"", b"GIF89a", _png(0)[:-30], b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_what_is_no_image_is_named(store, content):
    with pytest.raises(DataDamaged, match=r"train/a/0\.png is not a JPEG or PNG image"):
        load_image_folder(store({"train/a/0.png": content}))


@pytest.mark.parametrize("other", [_png(0, size=(5, 3)), _png(0, "L")])
def test_an_image_of_another_shape_is_named(store, other):
    with pytest.raises(DataDamaged, match=r"train/b/0\.png: shape .* the first image has \(3, 3, 4\)"):
        load_image_folder(store({"train/a/0.png": _png(0), "train/b/0.png": other}))


def test_a_class_that_is_only_in_test_is_named(store):
    with pytest.raises(DataDamaged, match="class 'dog' is in test but not in train"):
        load_image_folder(store({**FILES, "test/dog/0.png": _png(0)}))


def test_without_images_the_error_says_what_is_expected(store):
    with pytest.raises(DataMissing, match="must hold train/<class>"):
        load_image_folder(store({"cat/0.png": _png(0)}))


def test_a_limit_below_one_is_refused(store):
    with pytest.raises(RuleError, match="got 0"):
        load_image_folder(store(FILES), limit_per_class=0)


def test_what_is_no_zip_is_named(tmp_path):
    (tmp_path / "set.zip").write_bytes(b"PK but no zip")
    with pytest.raises(DataDamaged, match=r"set\.zip is not a zip file"):
        load_image_folder(tmp_path / "set.zip")


def test_a_damaged_member_of_a_zip_is_named(tmp_path):
    path = _zip(tmp_path / "set.zip", {"train/a/0.png": _png((9, 9, 9))})
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") if b"IDAT" in content else 60] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataDamaged, match=r"train/a/0\.png"):
        load_image_folder(path)


def test_a_member_that_unpacks_to_too_much_is_not_unpacked(tmp_path):
    path = _zip(tmp_path / "set.zip", {"train/a/0.png": bytes((1 << 26) + 1)})
    with pytest.raises(DataDamaged, match=r"train/a/0\.png has 67108865 bytes"):
        load_image_folder(path)


def test_a_folder_that_has_gone_is_missing(tmp_path):
    path = _folder(tmp_path / "set", FILES)
    shutil.rmtree(path / "train")
    with pytest.raises(DataMissing, match="has no images"):
        load_image_folder(path)
