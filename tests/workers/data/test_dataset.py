import numpy as np
import pytest

from fedat_service.errors import RuleError
from workers.data.dataset import Dataset


def _images(n, shape=(1, 2, 2)):
    return np.arange(n * np.prod(shape), dtype=np.uint8).reshape(n, *shape)


def _dataset(labels, **more):
    return Dataset("toy", _images(len(labels)), np.array(labels, np.int64), num_classes=3, **more)


def test_inputs_are_scaled_to_the_unit_interval():
    images = np.array([0, 4, 8, 16], np.uint8).reshape(1, 1, 2, 2)
    inputs = Dataset("toy", images, np.array([0]), num_classes=1, max_value=16).inputs()
    assert inputs.dtype == np.float32
    assert inputs.ravel().tolist() == [0, 0.25, 0.5, 1]


def test_inputs_of_some_indices_are_those_rows():
    dataset = _dataset([0, 1, 2])
    np.testing.assert_array_equal(dataset.inputs(np.array([2, 0])), dataset.inputs()[[2, 0]])


def test_the_input_shape_is_channels_height_width():
    dataset = Dataset("toy", _images(2, (3, 4, 5)), np.array([0, 0]), num_classes=1)
    assert (dataset.input_shape, len(dataset)) == ((3, 4, 5), 2)


def test_first_per_class_keeps_the_first_of_each_in_order_and_cuts_the_test_split_too():
    cut = _dataset([2, 0, 2, 0, 2, 1], test=_dataset([1, 1, 1])).first_per_class(2)
    assert cut.labels.tolist() == [2, 0, 2, 0, 1]
    np.testing.assert_array_equal(cut.images, _images(6)[[0, 1, 2, 3, 5]])
    assert cut.test.labels.tolist() == [1, 1]


def test_first_per_class_keeps_the_groups_of_what_is_left():
    cut = _dataset([2, 0, 2, 2], groups=np.array([5, 6, 7, 8])).first_per_class(1)
    assert cut.groups.tolist() == [5, 6]


def test_groups_that_do_not_fit_are_refused():
    with pytest.raises(RuleError, match=r"3 labels with groups of shape \(2,\)"):
        _dataset([0, 1, 2], groups=np.array([0, 0]))


def test_a_limit_below_one_is_refused():
    with pytest.raises(RuleError, match="got 0"):
        _dataset([0]).first_per_class(0)


@pytest.mark.parametrize(
    ("images", "labels", "complaint"),
    [
        (_images(2).astype(np.float32), [0, 0], "float32"),
        (_images(2)[0], [0, 0], r"\(1, 2, 2\)"),
        (_images(2), [0, 0, 0], r"2 int64 labels"),
        (_images(2), [0.0, 1.0], "float64"),
        (_images(2), [0, 3], r"0\.\.3 are not in 0\.\.2"),
        (_images(2), [-1, 0], r"-1\.\.0"),
    ],
)
def test_images_and_labels_that_do_not_fit_are_refused(images, labels, complaint):
    with pytest.raises(RuleError, match=complaint):
        Dataset("toy", images, np.array(labels), num_classes=3)
