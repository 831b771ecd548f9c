"""A method as somebody at a terminal says it: a preset, and what is different about it on each axis."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fedat_service.errors import ConfigError
from fedat_service.wire.complaints import first_of, place_of, reason_of
from fedat_service.wire.presets import resolve
from fedat_service.wire.settings import Method

_AXES = tuple(Method.model_fields)


def method_of(preset: str, options: Mapping[str, Mapping[str, Any]], changes: Sequence[str] = ()) -> Method:
    """A preset with other values.

    Args:
        preset: Its name.
        options: Values by axis and by the option that gave them, a field or `AXIS` for its name; None for
            those that nobody gave.
        changes: `AXIS.FIELD=VALUE`: what TOML takes for a value, and else a text. They go before options.

    Raises:
        Unprocessable: If no preset has that name.
        ConfigError: If a value makes no sense; the message names its option, or the change.
    """
    said = [_read(change) for change in changes]
    axes = {}
    for axis, settings in resolve(preset):
        given = {"name" if o == axis else o: v for o, v in options.get(axis, {}).items() if v is not None}
        changed = {field: value for where, field, value in said if where == axis}
        try:
            axes[axis] = settings.changed({**given, **changed})
        except ValidationError as error:
            first = first_of(error)
            field = place_of(first)
            option = axis if field == "name" else field.replace("_", "-")
            name = f"--{option}" if field in given and field not in changed else f"--set {axis}.{field}"
            raise ConfigError(f"{name}: {reason_of(first)}") from error
    return Method(**axes)


def _read(change: str) -> tuple[str, str, Any]:
    """Axis, field and value.

    Raises:
        ConfigError: If it has not this form, or there is no such axis.
    """
    place, equals, text = change.partition("=")
    axis, dot, field = place.partition(".")
    if not (equals and dot and field):
        raise ConfigError(f"--set {change!r} is not AXIS.FIELD=VALUE, as schedule.phi=4 is")
    if axis not in _AXES:
        raise ConfigError(f"--set {change!r}: there is no axis {axis!r}, but {', '.join(_AXES)}")
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return axis, field, text
    return axis, field, read["value"] if len(read) == 1 else text
