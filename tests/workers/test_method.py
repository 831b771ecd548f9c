import pytest

from fedat_service.errors import ConfigError, Unprocessable
from fedat_service.wire.presets import PRESETS, resolve
from workers.method import method_of


@pytest.mark.parametrize("preset", PRESETS)
def test_without_a_change_it_is_the_preset(preset):
    assert method_of(preset, {"solver": {"lr": None}, "codec": {"codec": None}}) == resolve(preset)


def test_every_kind_of_value_can_be_set():
    method = method_of(
        "fedat",
        {"solver": {"lr": 0.5, "epochs": 2}},
        [
            "schedule.name=fedals",
            'schedule.head=["fc*", "out"]',
            "schedule.alpha=4",
            "codec.name=affine8",
            "codec.directions=both",
            "server.name=fedadam",
            "server.lr=1e-2",
            "solver.epochs=7",
        ],
    )
    assert (method.schedule.name, method.schedule.head, method.schedule.alpha) == (
        "fedals",
        ("fc*", "out"),
        4,
    )
    assert (method.codec.name, method.codec.directions) == ("affine8", "both")
    assert (method.server.name, method.server.lr) == ("fedadam", 0.01)
    assert (method.solver.lr, method.solver.epochs) == (0.5, 7)
    assert method.participation == resolve("fedat").participation


def test_another_choice_loses_what_only_the_presets_has():
    method = method_of("fedals", {}, ["participation.name=fedbuff", "solver.name=mime"])
    assert (method.participation.name, method.solver.name) == ("fedbuff", "mime")
    assert method.solver.lr == resolve("fedals").solver.lr


@pytest.mark.parametrize(
    ("options", "changes", "reason"),
    [
        ({}, ["schedule.phi"], "'schedule.phi' is not AXIS.FIELD=VALUE"),
        ({}, ["phi=4"], "'phi=4' is not AXIS.FIELD=VALUE"),
        ({}, ["plan.phi=4"], "there is no axis 'plan', but participation, schedule, solver, server, codec"),
        ({}, ["schedule.name=fedlama", "schedule.phi=x"], "--set schedule.phi: must be a number, got 'x'"),
        (
            {},
            ["schedule.name=fedlama", "schedule.phi=4\nx = 1"],
            "--set schedule.phi: must be a number, got '4",
        ),
        ({}, ["schedule.phi=4"], "--set schedule.phi: phi belongs to fedlama, not to full, got 4"),
        ({}, ["server.nothing=1"], "--set server.nothing: there is no such field"),
        ({}, ["solver.name=sgdd"], "--set solver.name: Input should be 'sgd'"),
        (
            {"solver": {"batch_size": 0}},
            [],
            "--batch-size: Input should be greater than or equal to 1, got 0",
        ),
        ({"codec": {"codec": "zip"}}, [], "--codec: Input should be 'float32'"),
        ({"solver": {"lr": 1.0}}, ["solver.lr=0"], "--set solver.lr: Input should be greater than 0, got 0"),
    ],
)
def test_a_change_that_makes_no_sense_is_named(options, changes, reason):
    with pytest.raises(ConfigError) as refusal:
        method_of("fedavg", options, changes)
    assert reason in str(refusal.value)


def test_an_unknown_preset_is_refused():
    with pytest.raises(Unprocessable, match="no method 'fedavgg'"):
        method_of("fedavgg", {})
