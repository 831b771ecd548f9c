from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from loadtest.experiments.options import FILE, given, with_options
from loadtest.experiments.settings import ExperimentSettings


@pytest.fixture
def fields_of():
    """`fields_of(defaults, *without)(*arguments)` are the fields that a command with these options gets."""

    def build(defaults, *without):
        app, taken = typer.Typer(), {}

        @app.command()
        @with_options(defaults, *without)
        def command(**fields):
            taken.update(fields)

        def call(*arguments):
            result = CliRunner().invoke(app, arguments, catch_exceptions=False)
            assert result.exit_code == 0, result.output
            return taken

        return call

    return build


def test_without_options_an_experiment_is_what_it_is_by_default(fields_of):
    assert ExperimentSettings(**given(fields_of({})())) == ExperimentSettings()


def test_options_are_values_of_fields(fields_of):
    fields = given(
        fields_of({})(
            "--clients", "7", "--lr", "0.5", "--out", "here", "--methods", "fedavg, tifl", "--unstable", "0"
        )
    )
    settings = ExperimentSettings(**fields)
    assert (settings.num_clients, settings.lr, settings.out) == (7, 0.5, Path("here"))
    assert settings.methods == ("fedavg", "tifl")


def test_what_a_file_says_is_left_to_the_file(fields_of):
    assert given(fields_of(FILE)("--horizon", "60")) == {"horizon_s": 60.0}


def test_what_a_file_has_switched_on_can_be_switched_off(fields_of):
    assert given(fields_of(FILE)("--bfloat16", "--no-keep-updates")) == {
        "bfloat16": True,
        "keep_updates": False,
    }
    assert given(fields_of(FILE)("--no-bfloat16")) == {"bfloat16": False}


def test_a_command_can_do_without_some(fields_of):
    assert "rate" not in fields_of({}, "rate")()


def test_every_field_is_described():
    assert all(field.description for field in ExperimentSettings.model_fields.values())
