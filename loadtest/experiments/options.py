"""Command-line options for the fields of an experiment: name, type, default and help are the field's own."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from loadtest.experiments.settings import ExperimentSettings

Command = TypeVar("Command", bound=Callable[..., None])

_NAMES = {
    "num_clients": "clients",
    "num_tiers": "tiers",
    "cohort_size": "cohort",
    "deadline_s": "deadline",
    "num_unstable": "unstable",
    "horizon_s": "horizon",
    "evaluate_every_s": "evaluate-every",
}
"""Options with a shorter name than their field."""

_FILE_ONLY = ("method", "reference")
"""Fields that take more than an option has room for."""

FILE: Mapping[str, None] = dict.fromkeys(ExperimentSettings.model_fields)
"""Defaults of a command that reads a file: what is not given is what the file says."""


def with_options(
    defaults: Mapping[str, Any], *without: str, panel: str | None = None
) -> Callable[[Command], Command]:
    """Give a command that takes `**fields` an option for every field of an experiment.

    Args:
        defaults: Other defaults than the fields' own.
        without: Fields that the command has no option for.
        panel: Heading of the options in the command's help.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        for name, field in ExperimentSettings.model_fields.items():
            if name not in (*_FILE_ONLY, *without):
                kind, default = _kind(field.annotation), defaults.get(name, field.default)
                option = typer.Option(_option(name, kind), help=field.description, rich_help_panel=panel)
                parameters.append(
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=",".join(default) if isinstance(default, tuple) else default,
                        annotation=Annotated[kind | None, option],
                    )
                )
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a command line gives, as an experiment takes them."""
    values = {name: value for name, value in fields.items() if value is not None}
    if "methods" in values:
        values["methods"] = tuple(name.strip() for name in values["methods"].split(","))
    return values


def _option(field: str, kind: type) -> str:
    name = _NAMES.get(field, field).replace("_", "-")
    # What a file says can be taken back.
    return f"--{name}/--no-{name}" if kind is bool else f"--{name}"


def _kind(annotation: Any) -> Any:  # noqa: ANN401 - a type as pydantic holds it
    """The class behind an annotation, without checks; a tuple is text with commas."""
    if get_origin(annotation) is tuple:
        return str
    while not isinstance(annotation, type):
        annotation = get_args(annotation)[0]
    return annotation
