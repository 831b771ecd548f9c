import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from fedat_service.errors import ConfigError, TrainingError
from workers.training.batches import Batches, Course

X = torch.arange(10.0).reshape(10, 1)
Y = torch.arange(10)


@settings(deadline=None)
@given(n=st.integers(0, 30), batch_size=st.integers(1, 12))
def test_an_epoch_has_every_example_once_with_its_label(n, batch_size):
    x, y = torch.arange(float(n)).reshape(n, 1), torch.arange(n)
    for batches in (Batches((x, y)).shuffled(batch_size), Batches((x, y)).in_order(batch_size)):
        seen = [(int(value), int(label)) for bx, by in batches for value, label in zip(bx, by, strict=True)]
        assert sorted(seen) == [(i, i) for i in range(n)]


def test_all_batches_but_the_last_are_full():
    assert [len(y) for _, y in Batches((X, Y)).shuffled(4)] == [4, 4, 2]


def test_every_epoch_has_another_order_and_in_order_keeps_it():
    batches = Batches((X, Y))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second = (torch.cat([y for _, y in batches.shuffled(3)]).tolist() for _ in range(2))
    assert first != second
    assert torch.cat([y for _, y in batches.in_order(3)]).tolist() == list(range(10))


def test_arrays_are_as_good_as_tensors():
    (x, y), *_ = Batches((X.numpy().copy(), Y.numpy().copy())).in_order(10)
    assert torch.equal(x, X)
    assert torch.equal(y, Y)


@pytest.mark.parametrize("data", [[(X[:6], Y[:6]), (X[6:], Y[6:])], ((X[:6], Y[:6]), (X[6:], Y[6:]))])
def test_a_sequence_of_batches_is_taken_as_it_is(data):
    batches = Batches(data)
    assert [len(y) for _, y in batches.shuffled(3)] == [6, 4]
    assert [len(y) for _, y in batches.in_order(3)] == [6, 4]


def test_a_dataloader_keeps_its_batch_size():
    batches = Batches(DataLoader(TensorDataset(X, Y), batch_size=5))
    assert [len(y) for _, y in batches.shuffled(3)] == [5, 5]


def test_inputs_without_labels_are_refused():
    with pytest.raises(ConfigError, match="10 inputs do not match 9 labels"):
        Batches((X, np.zeros(9, np.int64)))


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(1, 30),
    batch_size=st.integers(1, 12),
    first=st.integers(0, 10),
    count=st.none() | st.integers(0, 10),
    is_loader=st.booleans(),
)
def test_a_part_of_an_epoch_is_the_batches_of_the_whole(n, batch_size, first, count, is_loader):
    x, y = torch.arange(float(n)).reshape(n, 1), torch.arange(n)
    batches = Batches(DataLoader(TensorDataset(x, y), batch_size, shuffle=True) if is_loader else (x, y))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = _labels(batches.shuffled(batch_size))
        torch.manual_seed(0)
        part = _labels(batches.shuffled(batch_size, first, count))
    assert part == whole[first:][:count]


def _labels(batches):
    return [labels.tolist() for _, labels in batches]


@settings(deadline=None, max_examples=50)
@given(cuts=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_course_that_is_left_and_gone_on_with_is_one_course(cuts):
    batches, kept, seen = Batches((X, Y)), {}, []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        expected = _labels(Course(batches, 4, {}).steps(sum(cuts)))
        torch.manual_seed(1)
        for cut in cuts:
            course = Course(batches, 4, kept)
            seen += _labels(course.steps(cut))
            kept = course.kept()
            torch.manual_seed(99)
    assert seen == expected


def test_a_course_goes_through_every_epoch_in_an_order_of_its_own():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        labels = _labels(Course(Batches((X, Y)), 5, {}).steps(4))
    first, second = labels[0] + labels[1], labels[2] + labels[3]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_epochs_after_steps_begin_with_the_rest_of_the_epoch():
    course = Course(Batches((X, Y)), 4, {})
    with torch.random.fork_rng(devices=[]):
        begun = _labels(course.steps(1))
        rest = _labels(course.epochs(1))
    assert sorted(label for labels in begun + rest for label in labels) == list(range(10))


@pytest.mark.parametrize("data", [(X[:0], Y[:0]), iter([(X, Y)])])
def test_steps_without_end_on_data_that_ends_are_refused(data):
    with pytest.raises(TrainingError, match="an epoch has no batch"):
        list(Course(Batches(data), 4, {}).steps(5))


def test_examples_are_counted_in_tensors_and_in_loaders():
    assert Batches((X, Y)).num_examples() == 10
    assert Batches(DataLoader(TensorDataset(X, Y), batch_size=3)).num_examples() == 10
