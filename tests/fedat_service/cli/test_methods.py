import json

import click
import pytest
from typer.testing import CliRunner

from fedat_service import cli
from fedat_service.wire.presets import PRESETS
from fedat_service.wire.settings import Method

CONV, FC = ("conv.weight", "conv.bias"), ("fc.weight", "fc.bias")
WHOLE = dict.fromkeys((*CONV, *FC), 1)
HEAD = dict.fromkeys(CONV, 1) | dict.fromkeys(FC, 10)
KERNEL = dict.fromkeys((*CONV, *FC), 2) | {"fc.weight": 1}

PLAIN = {"weights": WHOLE}
BESIDE = {
    "fedlama": ({"weights": KERNEL}, {"weights": KERNEL}),
    "fedals": ({"weights": HEAD}, {"weights": HEAD}),
    "scaffold": (PLAIN | {"control": WHOLE}, PLAIN | {"control": WHOLE}),
    "fedals+scaffold": ({"weights": HEAD, "control": HEAD}, {"weights": HEAD, "control": HEAD}),
    "fedprox+fedlama": ({"weights": KERNEL}, {"weights": KERNEL}),
    "fedpaq+fedlama": ({"weights": KERNEL}, {"weights": KERNEL}),
    "fedlamb": (PLAIN | {"second_moment": WHOLE}, PLAIN | {"second_moment": WHOLE}),
    "fedams": (PLAIN | {"second_moment": WHOLE}, PLAIN | {"second_moment": WHOLE}),
    "mimelamb": (PLAIN | {"second_moment": WHOLE}, PLAIN | {"gradient": WHOLE}),
    "mime-ams": (PLAIN | {"second_moment": WHOLE}, PLAIN | {"gradient": WHOLE}),
    "mime": (PLAIN | {"control": WHOLE, "momentum": WHOLE}, PLAIN | {"gradient": WHOLE}),
    "fedat+fedlama": ({"weights": KERNEL}, {"weights": KERNEL}),
    "fedat+fedals": ({"weights": HEAD}, {"weights": HEAD}),
}
"""What a round sends down and up beside one model each way."""


@pytest.fixture(scope="module")
def listed():
    result = CliRunner().invoke(cli.build(), ["methods", "--json"], catch_exceptions=False)
    return json.loads(result.stdout)["methods"]


def test_every_preset_is_there_with_its_axes_and_its_paper(listed):
    assert {name: (one["axes"], one["paper"]) for name, one in listed.items()} == {
        name: (preset.method.model_dump(mode="json"), preset.paper) for name, preset in PRESETS.items()
    }
    assert all(Method.model_validate_json(json.dumps(one["axes"])) for one in listed.values())


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_what_a_round_sends_is_the_papers_row(listed, name):
    assert (listed[name]["down"], listed[name]["up"]) == BESIDE.get(name, (PLAIN, PLAIN))


@pytest.mark.parametrize(("name", "exchanges"), [("fedat", 1), ("mime", 2), ("fedlama", 2), ("fedals", 10)])
def test_a_round_has_as_many_exchanges_as_it_has_syncs(listed, name, exchanges):
    assert listed[name]["exchanges"] == exchanges


def test_people_are_told_in_words():
    told = click.unstyle(CliRunner().invoke(cli.build(), ["methods"], catch_exceptions=False).output)
    block = told.split("\n\n")[list(PRESETS).index("fedals+scaffold")]
    assert block.splitlines()[0].startswith("fedals+scaffold: FedALS")
    part = "(conv.weight, conv.bias x1; fc.weight, fc.bias x10)"
    assert block.splitlines()[2:4] == [
        "  schedule      fedals alpha=10 head=classifier",
        "  solver        scaffold lr=0.01 weight_decay=0.0001 steps=5 batch_size=64 reset=round",
    ]
    assert block.splitlines()[-1] == f"  up            weights {part}; control {part}"
