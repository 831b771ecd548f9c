"""The work that all contestants do. Imports only numpy and torch: the others' environments have no more."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

MODELS = ("cnn", "mlp", "logistic")
CLIENTS, COHORT, PROCESSES = 100, 10, 2
CLASSES, TRAINING_IMAGES, TEST_IMAGES = 10, 120, 100
"""Of the whole set, and of each client."""
BATCH, LR = 10, 1e-3
EVALUATION_BATCH = 100
"""The fastest for a plain CNN on a processor; larger ones leave the cache."""

REPORT_STARTS = '{"versions"'
"""How the one line of a contestant begins."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a contestant is asked for; `evaluate` is after every round, not only after the last."""

    data: Path
    model: str
    epochs: int
    rounds: int
    seed: int
    evaluate: bool
    bfloat16: bool

    @property
    def workload(self) -> str:
        """Model and epochs in one word."""
        return f"{self.model}_e{self.epochs}"

    def as_arguments(self) -> list[str]:
        """What `read_options` reads."""
        named = {name: getattr(self, name) for name in self.__slots__}
        switches = [f"--{name}" for name, value in named.items() if value is True]
        return switches + [f"--{n}={value}" for n, value in named.items() if not isinstance(value, bool)]


def read_options() -> Options:
    """Read a contestant's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", choices=MODELS, required=True)
    for number in ("--epochs", "--rounds", "--seed"):
        parser.add_argument(number, type=int, required=True)
    for switch in ("--evaluate", "--bfloat16"):
        parser.add_argument(switch, action="store_true")
    return Options(**vars(parser.parse_args()))


@lru_cache(maxsize=1)
def load_examples(data: Path) -> dict[str, Tensor]:
    """Load what `write_data` of `ours` wrote, once a process.

    That is `x` ``(100, 120, 1, 28, 28)`` and `y` by client, `test_x` and `test_y` of all clients, `cohorts`
    ``(rounds, 10)``, and initial models.
    """
    with np.load(data) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def start_of(examples: dict[str, Tensor], model: str) -> dict[str, Tensor]:
    """The initial state of a network."""
    prefix = f"{model}/"
    return {name.removeprefix(prefix): one for name, one in examples.items() if name.startswith(prefix)}


class Network(nn.Module):
    """The networks of `workers.models.networks` as one writes them down; the same parameters."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        if name == "logistic":
            self.fc = nn.Linear(784, 10)
        elif name == "mlp":
            self.fc1, self.fc2 = nn.Linear(784, 200), nn.Linear(200, 10)
        else:
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
            self.conv3 = nn.Conv2d(64, 64, 3)
            self.fc1, self.fc2 = nn.Linear(576, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(B, 1, 28, 28)`` to class scores ``(B, 10)``."""
        if self.name == "cnn":
            for conv in (self.conv1, self.conv2):
                x = F.max_pool2d(F.relu(conv(x)), 2)
            x = F.relu(self.conv3(x))
        x = x.flatten(1)
        scores: Tensor = self.fc(x) if self.name == "logistic" else self.fc2(F.relu(self.fc1(x)))
        return scores


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    """Train on one client's examples: default Adam, a fresh order for every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    model.train()
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(y)), BATCH):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def accuracy(model: nn.Module, examples: dict[str, Tensor]) -> float:
    """Share of the clients' test images that the model gets right."""
    model.eval()
    with torch.inference_mode():
        scores = torch.cat([model(x) for x in torch.split(examples["test_x"], EVALUATION_BATCH)])
    return float((scores.argmax(1) == examples["test_y"]).double().mean())


def report(marks_s: Sequence[float], reached: float, *packages: str) -> None:
    """Print the one line of a contestant.

    Args:
        marks_s: When the rounds began, and when the last one ended; the first round does not count.
        reached: Accuracy of the last model.
        packages: Whose versions to tell, beside torch's.
    """
    versions = {package: version(package) for package in ("torch", *packages)}
    line = {"versions": versions, "round_s": median(np.diff(marks_s)[1:].tolist()), "accuracy": reached}
    sys.stdout.write(json.dumps(line) + "\n")
