from typing import get_args

import pytest
from pydantic import ValidationError

from fedat_service.wire.presets import PRESETS, resolve
from fedat_service.wire.settings import CodecSettings, Method, Schedule, ServerOptimizer, Tiering


@pytest.mark.parametrize(
    "given",
    [
        {"name": "full"},
        {"name": "full", "buffers": "local"},
        {"name": "fedals", "alpha": 5, "head": "classifier"},
        {"name": "fedals", "head": 2},
        {"name": "fedals", "head": ["fc*", "layer4.*"]},
        {"name": "fedlama", "phi": 4, "rule": "text", "unit": "layer", "warmup_blocks": 0},
    ],
)
def test_a_schedule_comes_back_from_json_as_it_was(given):
    schedule = Schedule.model_validate(given)
    assert Schedule.model_validate_json(schedule.model_dump_json()) == schedule
    dumped = schedule.model_dump(mode="json")
    assert {key: dumped[key] for key in given} == given


@pytest.mark.parametrize(
    "given",
    [
        {"name": "average"},
        {"name": "server_lr", "gamma": 2.0},
        {"name": "fedadam", "lr": 0.01, "beta2": 0.999, "tau": 1e-9, "v0": 1e-6},
        {"name": "fedyogi", "beta1": 0.0},
        {"name": "fedadagrad", "lr": 1.0},
    ],
)
def test_a_server_optimizer_comes_back_from_json_as_it_was(given):
    optimizer = ServerOptimizer.model_validate(given)
    assert ServerOptimizer.model_validate_json(optimizer.model_dump_json()) == optimizer
    dumped = optimizer.model_dump(mode="json")
    assert {key: dumped[key] for key in given} == given


def test_a_method_sends_everything_and_averages_unless_asked():
    assert (Method().schedule.name, Method().server.name) == ("full", "average")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "full", "alpha": 2}, "alpha belongs to fedals, not to full"),
        ({"name": "fedlama", "head": 1}, "head belongs to fedals, not to fedlama"),
        ({"name": "fedals", "phi": 4}, "phi belongs to fedlama, not to fedals"),
        ({"name": "full", "warmup_blocks": 0}, "warmup_blocks belongs to fedlama, not to full"),
        ({"name": "fedals", "alpha": 0}, "alpha"),
        ({"name": "fedals", "alpha": "5"}, "alpha"),
        ({"name": "fedals", "head": "last"}, "head"),
        ({"name": "fedals", "head": 0}, "head"),
        ({"name": "fedals", "head": True}, "head"),
        ({"name": "fedals", "head": []}, "head"),
        ({"name": "fedals", "head": [""]}, "head"),
        ({"name": "fedlama", "phi": 0}, "phi"),
        ({"name": "fedlama", "rule": "preprint"}, "rule"),
        ({"name": "layers"}, "name"),
        ({"name": "full", "every": 2}, "every"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Schedule.model_validate(given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "average", "gamma": 2.0}, "gamma belongs to server_lr, not to average"),
        ({"name": "server_lr", "lr": 1.0}, "lr belongs to fedadam and fedyogi and fedadagrad, not to server"),
        ({"name": "fedadagrad", "beta2": 0.9}, "beta2 belongs to fedadam and fedyogi, not to fedadagrad"),
        ({"name": "server_lr", "gamma": 0.0}, "gamma"),
        ({"name": "fedadam", "tau": 0.0}, "tau"),
        ({"name": "fedadam", "v0": -1.0}, "v0"),
        ({"name": "fedadam", "beta1": 1.0}, "beta1"),
        ({"name": "fedadam", "lr": float("nan")}, "lr"),
        ({"name": "fedsgd"}, "name"),
    ],
)
def test_a_server_optimizer_that_makes_no_sense_is_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        ServerOptimizer.model_validate(given)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("axis", "name"),
    [
        (axis, name)
        for axis, field in Method.model_fields.items()
        for name in get_args(field.annotation.model_fields["name"].annotation)
    ],
)
def test_any_choice_fits_on_any_axis_of_a_preset(preset, axis, name):
    before = getattr(resolve(preset), axis)
    after = before.changed({"name": name})
    assert after.name == name
    shared = {field for field in type(before).model_fields if field not in before.belongs} - {"name"}
    assert all(getattr(after, field) == getattr(before, field) for field in shared)
    assert name != before.name or after == before


def test_what_is_given_for_another_choice_is_refused():
    with pytest.raises(ValidationError, match="levels belongs to qsgd, not to polyline"):
        CodecSettings(name="qsgd", levels=3).changed({"name": "polyline", "levels": 4})


@pytest.mark.parametrize(
    ("kind", "given", "place"),
    [
        (CodecSettings, {"name": "float16", "layout": "flat"}, ("layout",)),
        (CodecSettings, {"name": "float32", "precision": 5}, ("precision",)),
        (CodecSettings, {"name": "float32", "directions": "both"}, ("directions",)),
        (CodecSettings, {"name": "polyline", "levels": 4}, ("levels",)),
        (CodecSettings, {"name": "qsgd", "levels": True}, ("levels",)),
        (CodecSettings, {"name": "qsgd", "directions": "down"}, ("directions",)),
        (CodecSettings, {"name": "qsgd", "reference": "absolute"}, ("reference",)),
        (CodecSettings, {"name": "affine8", "levels": 255}, ("levels",)),
        (CodecSettings, {"name": "affine8", "precision": 3}, ("precision",)),
        (Tiering, {"num_tiers": 2, "quantiles": [0.5]}, ("quantiles",)),
        (Tiering, {"hysteresis": 0.5}, ("hysteresis",)),
        (Schedule, {"name": "fedals", "head": "last"}, ("head",)),
        (Schedule, {"name": "fedals", "head": 0}, ("head",)),
        (Schedule, {"name": "fedals", "head": ["fc", ""]}, ("head", 1)),
        (Method, {"solver": {"name": "sgd", "option": "I"}}, ("solver", "option")),
    ],
)
def test_what_is_wrong_stands_once_where_it_is(kind, given, place):
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(given)
    assert [error["loc"] for error in refused.value.errors()] == [place]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (CodecSettings, {"name": "float32", "precision": 4}),
        (CodecSettings, {"name": "polyline", "reference": "absolute"}),
        (CodecSettings, {"name": "qsgd", "directions": "both"}),
        (CodecSettings, {"name": "affine8", "directions": "both"}),
        (Tiering, {"retier_every": 2, "hysteresis": 0.5}),
        (Tiering, {"rule": "quantiles", "num_tiers": 2, "quantiles": [0.5]}),
    ],
)
def test_what_says_nothing_or_something_is_taken(kind, given):
    settings = kind.model_validate(given)
    assert kind.model_validate_json(settings.model_dump_json()) == settings
