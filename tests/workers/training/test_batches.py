import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from fedat_service.errors import ConfigError
from workers.training.batches import Batches

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
