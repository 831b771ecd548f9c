"""A partition as a short string for the command line, and the split it stands for."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedat_service.errors import ConfigError, RuleError
from workers.data.partition import (
    Indices,
    Labels,
    classes_per_client,
    dirichlet,
    dirichlet_balanced,
    iid,
    lda,
    natural,
    shards,
)

FORMS = ("iid", "shards:2", "classes:2", "dirichlet:0.1", "dirichlet-balanced:0.1", "lda:0.1", "natural:8")
"""One example of every kind of partition."""

_COUNTED: Mapping[str, Callable[[Labels, int, int, int], list[Indices]]] = {
    "shards": shards,
    "classes": classes_per_client,
}
_DRAWN: Mapping[str, Callable[[Labels, int, float, int], list[Indices]]] = {
    "dirichlet": dirichlet,
    "dirichlet-balanced": dirichlet_balanced,
    "lda": lda,
}


@dataclass(frozen=True, slots=True)
class Partition:
    """How examples are shared out: a kind and its number (classes, shards or examples a client, or alpha).

    Raises:
        ConfigError: If there is no such kind, or the number does not suit it.
    """

    kind: str
    number: float | None = None

    def __post_init__(self) -> None:
        number = self.number
        if self.kind == "iid":
            fits = number is None
        elif self.kind in _COUNTED or self.kind == "natural":
            fits = number is not None and number >= 1 and float(number).is_integer()
        elif self.kind in _DRAWN:
            fits = number is not None and 0 < number < math.inf
        else:
            raise ConfigError(f"unknown partition {self.kind!r}: one of {', '.join(FORMS)}")
        if not fits:
            raise ConfigError(
                f"partition {self.kind!r} cannot take {number}: write one of {', '.join(FORMS)}"
            )

    @staticmethod
    def parse(text: str) -> "Partition":
        """Read ``kind`` or ``kind:number``; `FORMS` has an example of each.

        Raises:
            ConfigError: If the text is no partition.
        """
        kind, colon, number = text.partition(":")
        try:
            value = float(number) if colon else None
        except ValueError as error:
            raise ConfigError(f"partition {text!r}: {number!r} is not a number") from error
        return Partition(kind, value)


def split(
    labels: Labels, partition: Partition, num_clients: int, seed: int, groups: Indices | None = None
) -> list[Indices]:
    """Split the examples over `num_clients` clients as `partition` says.

    Args:
        labels: Shape ``(N,)``.
        partition: Which split.
        num_clients: How many clients there are.
        seed: Of the split.
        groups: Who or what each example comes from, of shape ``(N,)``; needed by ``natural`` only.

    Returns:
        One sorted array of indices a client; equal arguments give equal splits.

    Raises:
        RuleError: If the examples cannot be split so; see the functions of `workers.data.partition`.
    """
    kind, number = partition.kind, partition.number
    if number is None:
        return iid(labels, num_clients, seed)
    if kind == "natural":
        if groups is None:
            raise RuleError("partition 'natural' needs data that says where each example comes from")
        return natural(groups, num_clients, int(number), seed)
    if kind in _COUNTED:
        return _COUNTED[kind](labels, num_clients, int(number), seed)
    return _DRAWN[kind](labels, num_clients, number, seed)
