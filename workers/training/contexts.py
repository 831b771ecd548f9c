"""How torch runs while a client trains: with results that repeat bit for bit, and from a seed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

_EXACT = (
    (torch.backends.cudnn, "benchmark", False),
    (torch.backends.cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
    (torch.backends.cudnn.rnn, "fp32_precision", "ieee"),
    (torch.utils.deterministic, "fill_uninitialized_memory", False),
)
"""Settings of torch for a GPU: which kernels, float32 as it is, and no filling of memory that is written."""


@contextmanager
def computing_on(device: torch.device) -> Iterator[None]:
    """Run torch so that equal arguments give equal bits on one kind of device."""
    with one_thread():
        if device.type != "cuda":
            yield
            return
        with _exact():
            yield


def rounding(device: torch.device, bfloat16: bool) -> AbstractContextManager[object]:
    """Run layers in bfloat16, or as they are; parameters, losses and optimizers stay in float32."""
    return torch.autocast(device.type, torch.bfloat16) if bfloat16 else nullcontext()


def type_of_layers(weight: Tensor) -> torch.dtype:
    """What a layer with such a weight computes in, where it is called."""
    rounds = weight.dtype is torch.float32 and _rounds(weight.device)
    return torch.get_autocast_dtype(weight.device.type) if rounds else weight.dtype


def as_they_are(device: torch.device) -> AbstractContextManager[object]:
    """Run layers in the types of what they are given, within `rounding` too."""
    return torch.autocast(device.type, enabled=False) if _rounds(device) else nullcontext()


def _rounds(device: torch.device) -> bool:
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: with more, processes that share the cores slow each other down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _exact() -> Iterator[None]:
    """Have a GPU add up in one order; where torch cannot, it warns with the name of the operation."""
    mode = torch.get_deterministic_debug_mode()
    before = [getattr(settings, name) for settings, name, _ in _EXACT]
    torch.set_deterministic_debug_mode(mode or "warn")
    for settings, name, value in _EXACT:
        setattr(settings, name, value)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        for (settings, name, _), value in zip(_EXACT, before, strict=True):
            setattr(settings, name, value)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators, of the CPU and of `device`, and put them back as they were."""
    before = random_state(device)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)
    try:
        yield
    finally:
        set_random_state(before, device)


def random_state(device: torch.device) -> Tensor:
    """The state of torch's generator, which orders examples, and then of a GPU's, which drops out: bytes."""
    state = torch.get_rng_state()
    if device.type == "cuda":
        return torch.cat((state, torch.cuda.default_generators[device.index].get_state()))
    return state


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Go on from what `random_state` returned."""
    if device.type == "cuda":
        size = len(torch.get_rng_state())
        torch.cuda.default_generators[device.index].set_state(state[size:].clone())
        state = state[:size].clone()
    torch.set_rng_state(state)
