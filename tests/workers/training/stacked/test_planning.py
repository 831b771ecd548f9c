import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedat_service.errors import ConfigError
from workers.models.networks import build
from workers.training.stacked.planning import plan_stacks, stack_width

KEYS = st.lists(st.sampled_from([None, "a", "b", ("c", 3)]), max_size=40)
WIDTHS = st.integers(1, 12)


@given(KEYS, WIDTHS)
def test_every_job_is_in_exactly_one_stack(keys, width):
    placed = [index for stack in plan_stacks(keys, width) for index in stack]
    assert sorted(placed) == list(range(len(keys)))


@given(KEYS, WIDTHS)
def test_a_stack_has_one_key_and_is_not_wider_than_allowed(keys, width):
    for stack in plan_stacks(keys, width):
        assert 1 <= len(stack) <= width
        assert len({keys[index] for index in stack}) == 1


@given(KEYS, WIDTHS)
def test_jobs_without_a_key_train_alone(keys, width):
    stacks = plan_stacks(keys, width)
    assert all([index] in stacks for index, key in enumerate(keys) if key is None)


@given(KEYS, WIDTHS)
def test_the_stacks_of_a_key_are_as_few_as_can_be_and_even(keys, width):
    stacks = plan_stacks(keys, width)
    for key in set(keys) - {None}:
        sizes = [len(stack) for stack in stacks if keys[stack[0]] == key]
        assert len(sizes) == -(-keys.count(key) // width)
        assert max(sizes) - min(sizes) <= 1


@given(KEYS, WIDTHS)
def test_the_order_of_the_jobs_is_kept(keys, width):
    stacks = plan_stacks(keys, width)
    assert all(stack == sorted(stack) for stack in stacks)
    assert [stack[0] for stack in stacks] == sorted(stack[0] for stack in stacks)


def test_eleven_jobs_of_width_five_are_three_even_stacks():
    assert plan_stacks(["k"] * 11, 5) == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]


def test_a_width_below_one_is_refused():
    with pytest.raises(ConfigError, match="0"):
        plan_stacks(["k"], 0)


@pytest.mark.parametrize(
    ("name", "batch_size", "width"),
    [
        ("logistic", 10, 5),
        ("mlp", 64, 5),
        ("leaf-cnn", 10, 1),
        ("cnn", 10, 5),
        ("cnn", 31, 5),
        ("cnn", 32, 1),
    ],
)
def test_the_width_follows_the_kind_of_module_and_the_batch(name, batch_size, width):
    assert stack_width(build(name, (1, 28, 28), 10, seed=0), batch_size, torch.device("cpu")) == width


def test_a_large_model_trains_alone():
    assert stack_width(nn.Linear(1000, 1000), 10, torch.device("cpu")) == 1


@pytest.mark.parametrize("batch_size", [10, 64])
def test_a_gpu_takes_as_many_as_its_memory_has_room_for(batch_size):
    widths = [
        stack_width(build(name, (1, 28, 28), 10, seed=0), batch_size, torch.device("cuda:0"))
        for name in ("logistic", "cnn", "leaf-cnn")
    ]
    assert widths == [12738, 1071, 15]


def test_a_model_that_fills_a_gpu_trains_alone():
    with torch.device("meta"):
        huge = nn.Linear(20_000, 20_000)
    assert stack_width(huge, 10, torch.device("cuda:0")) == 1
