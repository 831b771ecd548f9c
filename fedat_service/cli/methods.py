"""The command `methods`: every preset, its axes, and what a round of it sends."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from fedat_service.methods.travel import Times, Travel, travel
from fedat_service.params import Manifest
from fedat_service.wire.messages import ManifestMessage, TensorMessage
from fedat_service.wire.presets import PRESETS, Preset

_EXAMPLE: Manifest = ManifestMessage(
    tensors=(
        TensorMessage(name="conv.weight", shape=(8, 1, 3, 3)),
        TensorMessage(name="conv.bias", shape=(8,)),
        TensorMessage(name="fc.weight", shape=(10, 128)),
        TensorMessage(name="fc.bias", shape=(10,)),
    )
).to_manifest()


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """List the methods that have a name: their five axes, what travels in a round, and the paper.

    What travels is counted for one client and a model of four tensors, from the plan that the service
    itself follows. FedLAMA's rounds are those after its first adjustment, in which the largest tensor has
    the long interval.
    """
    counted = {name: travel(preset.method, _EXAMPLE) for name, preset in PRESETS.items()}
    if as_json:
        typer.echo(json.dumps(_to_json(counted), indent=2))
        return
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    for name, preset in PRESETS.items():
        for line in _lines(name, preset, counted[name]):
            console.print(line)


def _to_json(counted: Mapping[str, Travel]) -> dict[str, Any]:
    return {
        "model": {tensor.name: tensor.shape for tensor in _EXAMPLE.tensors},
        "methods": {
            name: {
                "paper": PRESETS[name].paper,
                "axes": PRESETS[name].method.model_dump(mode="json"),
                "exchanges": one.exchanges,
                "down": one.down,
                "up": one.up,
            }
            for name, one in counted.items()
        },
    }


def _lines(name: str, preset: Preset, one: Travel) -> Iterator[str]:
    """A method in words."""
    yield f"{name}: {preset.paper}"
    for axis in type(preset.method).model_fields:
        settings = getattr(preset.method, axis)
        said = settings.model_dump(exclude_unset=True, exclude={"name"})
        words = [settings.name, *(f"{key}={value}" for key, value in said.items() if value)]
        yield f"  {axis:13} {' '.join(words)}"
    for direction, times in (("down", one.down), ("up", one.up)):
        yield f"  {direction:13} {'; '.join(_in_words(times))}"
    yield ""


def _in_words(times: Times) -> Iterator[str]:
    """`weights` if all of them travel once; else how often, and which."""
    whole = {tensor.name for tensor in _EXAMPLE.tensors}
    for slot, by_tensor in times.items():
        parts = []
        for count in sorted(set(by_tensor.values())):
            names = [tensor for tensor, often in by_tensor.items() if often == count]
            which = "all" if set(names) == whole else ", ".join(names)
            parts.append(f"{which} x{count}")
        yield f"{slot} ({'; '.join(parts)})"
