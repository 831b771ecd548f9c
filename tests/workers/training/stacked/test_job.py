import pytest
import torch

from fedat_service.wire.settings import Solver
from workers.training.stacked.job import Job, stack_key, work_key


def job(size=20, *, labels=None, shape=(4,), solver=None, seed=0):
    labels = torch.zeros(size, dtype=torch.int64) if labels is None else labels
    return Job(torch.zeros(size, *shape), labels, {}, solver or Solver(), seed)


def key(job, *, mixes_examples=False):
    return stack_key(job, mixes_examples=mixes_examples)


def test_jobs_with_equal_numbers_of_batches_share_a_stack_whatever_their_seeds():
    assert key(job(11, seed=1)) == key(job(20, seed=2)) is not None
    assert key(job(10)) != key(job(11))


def test_where_examples_mix_only_equal_sizes_share_a_stack():
    assert key(job(11), mixes_examples=True) != key(job(20), mixes_examples=True)
    assert key(job(20), mixes_examples=True) == key(job(20), mixes_examples=True)


@pytest.mark.parametrize("other", [job(solver=Solver(lr=0.1)), job(shape=(5,))])
def test_other_settings_and_other_inputs_are_other_stacks(other):
    assert key(other) != key(job())


@pytest.mark.parametrize(
    "solver",
    [
        Solver(name="scaffold"),
        Solver(name="momentum", reset="never"),
        Solver(steps=3),
    ],
)
def test_work_that_a_stack_does_not_do_is_done_alone(solver):
    assert work_key(solver, 20, mixes_examples=False) is None


@pytest.mark.parametrize(
    "labels",
    [
        torch.zeros(20),
        torch.zeros(20, 2, dtype=torch.int64),
        torch.zeros(19, dtype=torch.int64),
        torch.full((20,), -100),
    ],
)
def test_labels_that_are_not_one_class_an_example_train_alone(labels):
    assert key(job(labels=labels)) is None


def test_a_client_without_examples_trains_alone():
    assert key(job(0)) is None
