"""An `nn.Module` as a stacked forward: found by tracing, and held against the module before it is used."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from fedat_service.params import Params
from workers.models.state import require_fitting
from workers.training.contexts import one_thread, seeded
from workers.training.devices import CPU
from workers.training.stacked.fusing import fused
from workers.training.stacked.known_layers import call_layer, module_layer
from workers.training.stacked.layer import Back, Layer, Tensors, chained
from workers.training.stacked.layouts import laid_out
from workers.training.stacked.windows import looked_at

_CHECKED_CLIENTS, _CHECKED_EXAMPLES = 2, 3
_TOLERANCE = 1e-4
"""Share of the largest value. Sums in another order differ by 1e-6, a wrong layer by about 1."""


@dataclass(frozen=True, slots=True)
class NotStackable:
    """Why a module trains one client at a time."""

    reason: str


class StackedModel:
    """A chain of layers that K clients run at once; made by `stack`.

    Args:
        module: The module that was traced.
        layers: What its forward does, in this order.
    """

    def __init__(self, module: nn.Module, layers: Sequence[Layer]) -> None:
        self._module = module
        self._steps = laid_out(fused(layers))
        self._windows = [layer.window for layer in layers]
        self.mixes_examples = any(layer.mixes_examples for layer in layers)
        """Whether the examples of a batch depend on each other, so that none may be added to fill it up."""

    def __call__(self, tensors: Tensors, inputs: Tensor) -> tuple[Tensor, Back]:
        """Map inputs ``(K, B, ...)`` to scores ``(K, B, num_classes)``; buffers are moved in place.

        Returns:
            The scores, and what sets the gradients of `tensors` by that of the scores, once.
        """
        with torch.no_grad():
            return chained(self._steps)(self._seen(inputs), tensors, False)

    def _seen(self, inputs: Tensor) -> Tensor:
        """What the layers look at: the rest of an image would be calculated and dropped."""
        if inputs.dim() != 5:
            return inputs
        size = inputs.shape[3], inputs.shape[4]
        height, width = looked_at(self._windows, size)
        return inputs if (height, width) == size else inputs[..., :height, :width]

    def load(self, starts: Sequence[Params], device: torch.device = CPU) -> dict[str, Tensor]:
        """Stack the clients' `state_dict` on a device, in its order; what learns there needs a gradient.

        Raises:
            ManifestError: If one does not fit the module.
        """
        state = self._module.state_dict()
        for start in starts:
            require_fitting(state, start)
        stacked = {}
        for name, tensor in state.items():
            # Into torch's own memory, in one order: the starts' arrays may lie in memory in any.
            filled = _empty(len(starts), tensor)
            np.stack([start[name] for start in starts], out=filled.numpy(), casting="unsafe")
            stacked[name] = filled.to(device)
        return _learning(self._module, stacked)


def stack(module: nn.Module, example: Tensor) -> StackedModel | NotStackable:
    """Turn a module into a stacked forward, if it is a chain of known layers.

    That depends on the module alone, so it is found on the CPU, wherever the stack will train. The chain is
    used only if two clients with random parameters get the same scores, gradients and buffers
    from it as from the module itself. The module is left in training mode.

    Args:
        module: Any module; random layers, such as dropout, are not known.
        example: Inputs ``(B, ...)`` of the shape and dtype that it will be trained with.
    """
    if not example.is_floating_point():
        return NotStackable(f"its inputs are {example.dtype}")
    module.train()
    try:
        with one_thread(), seeded(0, CPU):
            model = StackedModel(module, _chain(module))
            _compare(model, module, example)
    except _UnknownError as error:
        return NotStackable(str(error))
    except Exception as error:  # noqa: BLE001 - a stranger's forward, run on stand-ins, may raise anything
        return NotStackable(f"it cannot be traced and tried: {type(error).__name__}: {error}")
    return model


def _empty(num_clients: int, tensor: Tensor) -> Tensor:
    """Room for a tensor of K clients; weights of images lie as images do, or each step would copy them."""
    if tensor.dim() != 4:
        return torch.empty((num_clients, *tensor.shape), dtype=tensor.dtype)
    out_channels, in_channels, height, width = tensor.shape
    lying = torch.empty((num_clients, out_channels, height, width, in_channels), dtype=tensor.dtype)
    return lying.permute(0, 1, 4, 2, 3)


class _UnknownError(Exception):
    """Something that is not a chain of known layers."""


def _chain(module: nn.Module) -> list[Layer]:
    """Trace a forward; every node must work on the result of the one before, and on constants."""
    if len(list(module.named_parameters(remove_duplicate=False))) > len(list(module.parameters())):
        raise _UnknownError("its layers share parameters")
    if (whole := module_layer("", module)) is not None:
        return [whole]
    graph_module = fx.symbolic_trace(module)
    layers: list[Layer] = []
    seen: list[fx.Node] = []
    shapes: set[fx.Node] = set()
    for node in graph_module.graph.nodes:
        if node.op == "placeholder" and not seen:
            seen.append(node)
        elif _is_shape_of(node, seen, shapes):
            shapes.add(node)
        elif not seen or not node.args or node.args[0] is not seen[-1]:
            raise _UnknownError(f"{_name(node)} does not follow the step before it")
        elif node.op == "output":
            return layers
        else:
            layers.append(_layer(graph_module, node, shapes))
            seen.append(node)
    raise _UnknownError("it has no output")


def _is_shape_of(node: fx.Node, seen: list[fx.Node], shapes: set[fx.Node]) -> bool:
    """Whether `node` is the shape of a value, or the first size of it: the size of the batch."""
    args: tuple[Any, ...] = node.args
    if node.op == "call_method" and node.target == "size":
        return args[0] in seen and args[1:] in ((), (0,))
    if node.op == "call_function" and node.target is getattr:
        return args[0] in seen and args[1] == "shape"
    return (
        node.op == "call_function" and node.target is operator.getitem and args[0] in shapes and args[1] == 0
    )


def _layer(graph_module: fx.GraphModule, node: fx.Node, shapes: set[fx.Node]) -> Layer:
    def constant(argument: fx.Node) -> None:
        if argument not in shapes:
            raise _UnknownError(f"{_name(node)} works on more than one value")

    args: Any = fx.map_arg(node.args[1:], constant)
    kwargs: Any = fx.map_arg(node.kwargs, constant)
    layer = None
    if node.op in ("call_function", "call_method"):
        layer = call_layer(node.target, tuple(args), dict(kwargs))
    elif node.op == "call_module" and not args and not kwargs:
        layer = module_layer(f"{node.target}.", graph_module.get_submodule(str(node.target)))
    if layer is None:
        raise _UnknownError(f"{_name(node)} is not known")
    return layer


def _name(node: fx.Node) -> str:
    return str(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target))


def _compare(model: StackedModel, module: nn.Module, example: Tensor) -> None:
    """Hold the stacked forward and its gradients against those of the module."""
    shape = (_CHECKED_CLIENTS, _CHECKED_EXAMPLES, *example.shape[1:])
    inputs = torch.randn(shape, dtype=example.dtype)
    states = [_random_state(module) for _ in inputs]
    tensors = _stack_states(module, states)
    scores, back = model(tensors, inputs)
    if scores.dim() != 3 or len(scores[0]) != _CHECKED_EXAMPLES:
        raise _UnknownError(f"its output for {_CHECKED_EXAMPLES} examples is {list(scores.shape[1:])}")
    direction = torch.randn_like(scores)
    back(direction)
    for k, state in enumerate(states):
        alone = _stack_states(module, [state])
        own = functional_call(module, {name: tensor[0] for name, tensor in alone.items()}, (inputs[k],))
        (own * direction[k]).sum().backward()
        _require_close({"scores": scores[k].detach()}, {"scores": own.detach()})
        _require_close(_of_client(tensors, k), _of_client(alone, 0))
        _require_close(_of_client(_gradients(tensors), k), _of_client(_gradients(alone), 0))


def _random_state(module: nn.Module) -> dict[str, Tensor]:
    learning = dict(module.named_parameters())
    state = module.state_dict()
    return {n: torch.randn_like(t) / 10 if n in learning else t.clone() for n, t in state.items()}


def _stack_states(module: nn.Module, states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    stacked = {}
    for name, tensor in states[0].items():
        stacked[name] = torch.stack([state[name] for state in states], out=_empty(len(states), tensor))
    return _learning(module, stacked)


def _learning(module: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Have those need a gradient that do in the module."""
    learning = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    return {name: tensor.requires_grad_(name in learning) for name, tensor in tensors.items()}


def _of_client(tensors: Tensors, k: int) -> dict[str, Tensor]:
    return {name: tensor[k].detach() for name, tensor in tensors.items()}


def _gradients(tensors: Tensors) -> dict[str, Tensor]:
    return {f"gradient of {n}": tensor.grad for n, tensor in tensors.items() if tensor.grad is not None}


def _require_close(stacked: Tensors, alone: Tensors) -> None:
    """Hold values against the largest of all: one that should be 0 is as large as the errors of the rest."""
    if [(n, t.shape) for n, t in stacked.items()] != [(n, t.shape) for n, t in alone.items()]:
        raise _UnknownError("stacked, it would give other tensors")
    allowed = _TOLERANCE * max((float(tensor.abs().max()) for tensor in alone.values()), default=0.0)
    for name, tensor in alone.items():
        if not ((stacked[name] - tensor).abs() <= allowed).all():
            raise _UnknownError(f"stacked, the {name} would have other values")
