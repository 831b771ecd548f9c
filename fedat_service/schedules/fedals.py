"""FedALS: the head of a network is averaged often, the representation below it rarely."""

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from fedat_service.errors import RuleError
from fedat_service.params import Manifest
from fedat_service.schedules.cycle import Cycle

_SHORTCUTS = frozenset({"shortcut", "downsample"})


def fedals(manifest: Manifest, tensors: Iterable[str], alpha: int, head: Collection[str]) -> Cycle:
    """Head layers at every sync, the others at every `alpha`-th.

    FedALS, Algorithm 1: the head h is averaged every tau steps, the representation phi every ``alpha tau``.
    Syncs end an interval (``(t + 1) % H == 0``), so that a round's last sync leaves nothing out of sync.
    A layer's buffers go with it.

    Args:
        manifest: The model.
        tensors: Names of the tensors that travel.
        alpha: How many times rarer the representation is averaged.
        head: Names of the head's layers.

    Raises:
        RuleError: If `alpha` is below 1.
    """
    if alpha < 1:
        raise RuleError(f"alpha must be at least 1, got {alpha}")
    often = {tensor.name for tensor in manifest.tensors if tensor.layer in head}
    return Cycle(alpha, {name: 1 if name in often else alpha for name in tensors})


def head_by_name(manifest: Manifest, patterns: Iterable[str]) -> frozenset[str]:
    """Layers whose names match one of some shell patterns (`*`, `?`, `[...]`; case counts).

    Raises:
        RuleError: If a pattern matches no layer or every layer, or all of them together do.
    """
    head: set[str] = set()
    for pattern in patterns:
        matched = {layer for layer in manifest.layers if fnmatchcase(layer, pattern)}
        if not matched:
            raise RuleError(f"head pattern {pattern!r} matches no layer of {', '.join(manifest.layers)}")
        head |= matched
        if len(head) == len(manifest.layers):
            raise RuleError(f"head pattern {pattern!r} leaves no layer outside the head")
    if not head:
        raise RuleError("a head needs at least one pattern")
    return frozenset(head)


def head_by_count(manifest: Manifest, count: int) -> frozenset[str]:
    """The last `count` groups of layers, as FedALS's authors group them: ResNet-20 has 20.

    A group begins with every layer that has a kernel (a trainable tensor of two dimensions or more), unless
    it is in a shortcut: a part of its name is `shortcut` or `downsample`. What follows belongs to the group
    before it: a batch norm to its convolution, a shortcut to the last convolution of its block.

    Raises:
        RuleError: If that is no layer, or all of them.
    """
    with_kernel = {t.layer for t in manifest.tensors if t.trainable and len(t.shape) >= 2}
    starts = [
        i
        for i, layer in enumerate(manifest.layers)
        if layer in with_kernel and _SHORTCUTS.isdisjoint(layer.split("."))
    ]
    if not 1 <= count < len(starts):
        raise RuleError(f"a model of {len(starts)} groups of layers has no head of {count}")
    return frozenset(manifest.layers[starts[-count] :])


def classifier(manifest: Manifest) -> frozenset[str]:
    """The last layer that learns.

    Raises:
        RuleError: If no layer learns, or no other does.
    """
    learning = list(dict.fromkeys(t.layer for t in manifest.tensors if t.trainable))
    if len(learning) < 2:
        raise RuleError(f"a head and a rest need two layers that learn, the model has {len(learning)}")
    return frozenset(learning[-1:])
