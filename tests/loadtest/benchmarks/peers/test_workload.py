import json
from pathlib import Path

import pytest
import torch

from loadtest.benchmarks.peers.workload import Network, Options, read_options, report, start_of
from workers.models.networks import build


def test_the_first_round_is_left_out(capsys):
    report([0.0, 9.0, 10.0, 12.0, 15.0], 0.5)
    line = json.loads(capsys.readouterr().out)
    assert (line["round_s"], line["accuracy"]) == (2.0, 0.5)


def test_versions_are_told(capsys):
    report([0.0, 1.0, 2.0], 0.5, "numpy")
    assert set(json.loads(capsys.readouterr().out)["versions"]) == {"torch", "numpy"}


def test_each_network_starts_from_its_own_state():
    examples = {"x": torch.zeros(1), "mlp/fc1.bias": torch.ones(1), "cnn/fc1.bias": torch.zeros(1)}
    assert start_of(examples, "mlp") == {"fc1.bias": torch.ones(1)}


@pytest.mark.parametrize("name", ["cnn", "mlp", "logistic"])
def test_the_others_train_the_networks_that_we_do(name):
    ours = build(name, (1, 28, 28), 10, seed=0)
    theirs = Network(name)
    theirs.load_state_dict(ours.state_dict())
    images = torch.rand((3, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(theirs(images), ours(images))


def test_options_can_be_handed_on(monkeypatch):
    options = Options(Path("some data.npz"), "mlp", 3, 20, 7, evaluate=True, bfloat16=False)
    monkeypatch.setattr("sys.argv", ["contestant", *options.as_arguments()])
    assert read_options() == options
