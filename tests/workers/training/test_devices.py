import os

import pytest
import torch

from fedat_service.errors import ConfigError
from workers.training.devices import find_device


@pytest.fixture
def with_gpus(monkeypatch):
    """`with_gpus(count)` has torch see so many."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize("name", ["auto", "cpu", torch.device("cpu")])
def test_without_a_gpu_it_is_the_cpu(with_gpus, name):
    with_gpus(0)
    assert find_device(name) == torch.device("cpu")
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("auto", "cuda:0"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda"), "cuda:0"),
        ("cpu", "cpu"),
    ],
)
def test_with_gpus_it_is_the_first_unless_another_is_named(with_gpus, name, device):
    with_gpus(2)
    assert str(find_device(name)) == device


def test_what_was_found_is_found_again(with_gpus):
    with_gpus(2)
    found = find_device("cuda:1")
    assert find_device(found) == find_device(str(found)) == found


@pytest.mark.parametrize(
    ("name", "num_gpus", "complaint"),
    [
        ("cuda", 0, "device 'cuda' is not there: torch .* sees 0 GPUs"),
        ("cuda:2", 2, "device 'cuda:2' is not there: torch .* sees 2 GPUs"),
        (torch.device("cuda:1"), 1, "device 'cuda:1' is not there"),
        ("gpu", 2, "device 'gpu' is none of auto, cpu, cuda, cuda:N"),
        ("cuda:-1", 2, "device 'cuda:-1' is none of"),
        ("", 2, "device '' is none of"),
    ],
)
def test_a_device_that_is_not_there_is_refused_by_its_name(with_gpus, name, num_gpus, complaint):
    with_gpus(num_gpus)
    with pytest.raises(ConfigError, match=complaint):
        find_device(name)


def test_a_gpu_is_told_to_add_in_one_order_unless_somebody_said_how(with_gpus, monkeypatch):
    with_gpus(1)
    find_device("cuda")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    find_device("cuda")
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
