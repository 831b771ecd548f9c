"""Who the clients of a fleet are: what each one holds and how long it takes."""

from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedat_service.errors import ConfigError
from workers.data.catalog import load
from workers.data.dataset import Dataset
from workers.data.partition import local_split
from workers.data.partition_setting import Partition, split
from workers.fleet.settings import FleetSettings
from workers.latency import DropOuts, parse_latency
from workers.models import networks
from workers.worker import Pace

Examples = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Inputs of shape ``(n, C, H, W)`` and labels of shape ``(n,)``."""

_PARTITION, _LOCAL_SPLIT = range(2)
"""Purpose numbers of the seeds: no two purposes share random numbers."""


class Population:
    """The clients of a fleet, a pure function of its settings: every process sees the same.

    Raises:
        ConfigError: If a setting makes no sense.
        DataMissing: If the data is not on this machine.
        RuleError: If the data cannot be partitioned so.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        self.dataset = load_dataset(settings)
        count, seed = settings.num_clients, settings.seed
        parts = split(
            self.dataset.labels,
            Partition.parse(settings.partition),
            count,
            _seed(seed, _PARTITION),
            self.dataset.groups,
        )
        self._splits = [
            local_split(part, _seed(seed, _LOCAL_SPLIT, client), settings.test_fraction)
            for client, part in enumerate(parts)
        ]
        self._latency = parse_latency(settings.latency, count, seed, settings.compute_s)
        self._drops = DropOuts(count, settings.num_unstable, settings.drop_horizon_s, seed)

    def num_examples(self, client: int) -> int:
        """Size of a client's training set."""
        return len(self._splits[client][0])

    def num_test_examples(self, client: int) -> int:
        """Size of a client's own test set."""
        return len(self._splits[client][1])

    def train_data(self, client: int) -> Examples:
        """A client's training set."""
        return self._examples(self._splits[client][0])

    def test_data(self, client: int) -> Examples:
        """A client's own test set; empty for a client with one example."""
        return self._examples(self._splits[client][1])

    def pace(self, client: int) -> Pace:
        """How long a client takes, and when it is gone."""
        return Pace(partial(self._latency.sample, client), self._drops.drop_time_s(client))

    def build_model(self) -> nn.Module:
        """Build the network that all clients train."""
        return build_model(self.settings.model, self.dataset, self.settings.seed)

    def _examples(self, indices: NDArray[np.int64]) -> Examples:
        return self.dataset.inputs(indices), self.dataset.labels[indices]


def load_dataset(settings: FleetSettings) -> Dataset:
    """Load the data set that the settings name, or call the function they name.

    Raises:
        ConfigError: If the function cannot be found or called, or returns no `Dataset`.
    """
    if (function := _function(settings.data, "")) is None:
        return load(settings.data, settings.data_dir, settings.limit_per_class)
    dataset = function()
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"{settings.data} must return a Dataset, got {type(dataset).__name__}")
    return dataset if settings.limit_per_class is None else dataset.first_per_class(settings.limit_per_class)


def build_model(name: str, dataset: Dataset, seed: int) -> nn.Module:
    """Build a network by its name, or call ``module:function`` with input shape and number of classes.

    Raises:
        ConfigError: If there is no such network, or the function cannot be called or returns no torch module.
    """
    if (function := _function(name, "input_shape, num_classes")) is None:
        return networks.build(name, dataset.input_shape, dataset.num_classes, seed)
    module = function(dataset.input_shape, dataset.num_classes)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{name} must return a torch module, got {type(module).__name__}")
    return module


def is_own(name: str) -> bool:
    """Whether a model or data set is the user's own, ``module:function``."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(p.isidentifier() for p in module.split("."))


def _function(name: str, arguments: str) -> Any:  # noqa: ANN401 - the user's code; its result is checked
    if not is_own(name):
        return None
    module, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(f"{name!r} cannot be imported: {error}") from error
    try:
        with suppress(ValueError):  # what is written in C may not tell what it takes
            signature(function).bind(*filter(None, arguments.split(", ")))
    except TypeError as error:
        raise ConfigError(f"{name} is called as {attribute}({arguments}), but: {error}") from error
    return function


def _seed(seed: int, *key: int) -> int:
    state = np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)
    return int(state[0] >> 1)
