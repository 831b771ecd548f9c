"""What a round of each local solver costs a client, against plain SGD on the same batches.

A client with 600 images of 1x28x28, batches of 10, one local epoch, the MLP with 200 hidden units and FedAT's
CNN; one process, one thread. All exchanges of a round are counted: Mime's full gradient before its work, and
its second gradient in every step; Mime-LAMB's full gradient beside its work.
"""

from collections.abc import Callable, Mapping
from typing import get_args

import numpy as np
import torch

from fedat_service.methods.exchanges import plan
from fedat_service.methods.solvers import half_for, start
from fedat_service.params import Manifest, Params
from fedat_service.schedules.cycle import uniform
from fedat_service.wire.settings import Slot, Solver
from loadtest.benchmarks.run import Results, measurement
from loadtest.benchmarks.timing import medians_s
from workers.models.networks import build
from workers.models.state import manifest_of, params_of
from workers.training.torch_trainer import TorchTrainer
from workers.training.trainer import NOTHING_KEPT, Sync

_SHAPE = (1, 28, 28)
_CLASSES = 10
_EXAMPLES = 600
_REPEATS = 7
_PLAIN = "sgd"
_NAMES = get_args(Solver.model_fields["name"].annotation)

_Round = Callable[[], None]


def measure() -> Results:
    """Seconds a round by model and solver: medians of interleaved repetitions."""
    return {
        f"solvers_{model}_{name}_vs_sgd": measurement(cost_s, costs_s[_PLAIN])
        for model in ("mlp", "cnn")
        for costs_s in [compare(model, _EXAMPLES, _REPEATS)]
        for name, cost_s in costs_s.items()
        if name != _PLAIN
    }


def compare(model: str, num_examples: int, repeats: int) -> dict[str, float]:
    """Seconds of a client's round with each solver, run by turns: medians."""
    module = build(model, _SHAPE, _CLASSES, seed=0)
    generator = torch.Generator().manual_seed(0)
    data = (
        torch.rand((num_examples, *_SHAPE), generator=generator),
        torch.randint(_CLASSES, (num_examples,), generator=generator),
    )
    trainer, params = TorchTrainer(module, data, data, device="cpu"), params_of(module)
    rounds = {name: _round(name, trainer, params, manifest_of(module)) for name in _NAMES}
    return medians_s(rounds, repeats)


def _round(name: str, trainer: TorchTrainer, params: Params, manifest: Manifest) -> _Round:
    """All exchanges of a round, as the service plans them."""
    solver = Solver.model_validate({"name": name, "lr": 1e-3, "batch_size": 10})
    half = half_for(solver)
    values = start(half, solver, manifest).values
    exchanges = plan(half, uniform(tensor.name for tensor in manifest.tensors), manifest, 1)
    shapes = {tensor.name: tensor.shape for tensor in manifest.tensors if tensor.trainable}
    slots: Mapping[Slot, Params] = {
        slot: _split(values[slot], shapes)
        for exchange in exchanges
        for slot in exchange.down
        if slot != "weights"
    }

    def run() -> None:
        kept = NOTHING_KEPT
        for index, exchange in enumerate(exchanges):
            came: dict[Slot, Params] = {slot: slots[slot] for slot in exchange.down if slot != "weights"}
            sync = Sync(index=index, last=exchange.last, blocks=exchange.blocks, slots=came, up=exchange.up)
            kept = trainer.train(params, solver, 0, sync, kept).kept

    return run


def _split(vector: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> Params:
    """The server's vector of a slot as tensors."""
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])
    parts = np.split(vector, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
