"""What pydantic finds wrong, as one line for people: where it is, why, and what was given."""

import reprlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

_SHORT = reprlib.Repr()
_SHORT.maxstring = 100

Details = Mapping[str, Any]
"""One of the errors that pydantic found: its `ErrorDetails`."""


def at_field(settings: type[BaseModel], field: str, value: object, why: str) -> ValidationError:
    """A finding of our own, as pydantic's: it then stands at the field, not at the whole."""
    kind = PydanticCustomError("not_fitting", "{why}", {"why": why})
    return ValidationError.from_exception_data(
        settings.__name__, [InitErrorDetails(type=kind, loc=(field,), input=value)]
    )


def first_of(error: ValidationError) -> Details:
    """The first error, without a link to pydantic's documentation."""
    details: Details = error.errors(include_url=False)[0]
    return details


def place_of(details: Details, *within: str) -> str:
    """Where an error is: `rounds.cohort_size`; nothing if it is about the whole."""
    return ".".join(str(part) for part in (*within, *details["loc"]) if part != "[key]")


def reason_of(details: Details) -> str:
    """Why a value is refused, with the value if it is short."""
    if details["type"] == "extra_forbidden":
        return "there is no such field"
    if details["type"] == "value_error":
        # A reason of our own; it holds the value.
        return str(details["ctx"]["error"])
    given = details["input"]
    return f"{details['msg']}{f', got {_SHORT.repr(given)}' if isinstance(given, str | int | float) else ''}"


def complaint(details: Details, *within: str) -> str:
    """Where and why in one line."""
    where, why = place_of(details, *within), reason_of(details)
    return f"{where}: {why}" if where else why
