"""How settings and messages are read: strict, frozen, and the same on both sides."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, WrapValidator

from fedat_service.wire.complaints import at_field


class Strict(BaseModel):
    """Base of everything that is read from JSON or TOML: no unknown key, no coercion, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _no_bool(value: Any) -> Any:  # noqa: ANN401 - runs before validation, on whatever JSON held
    if isinstance(value, bool | str):
        raise ValueError(f"must be a number, got {value!r}")  # noqa: TRY004 - pydantic's contract
    return value


Bool = Annotated[bool, Field(strict=True)]
Int = Annotated[int, BeforeValidator(_no_bool)]
Float = Annotated[float, BeforeValidator(_no_bool)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[Float, Field(ge=0, le=1e9)]
Seed = Annotated[Int, Field(ge=0, lt=2**63)]


def judged_as(member_for: Callable[[Any], Any]) -> WrapValidator:
    """Judge a value as the member of a union that it looks like; pydantic would find fault as every member.

    Args:
        member_for: Gives the member's type for a value.
    """
    return WrapValidator(lambda value, _: TypeAdapter(member_for(value)).validate_python(value))


def require_own(settings: BaseModel, name: str, belongs: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a value for a field that `name` does not have; a default there says nothing.

    Args:
        settings: What was given.
        name: Which of the choices it is.
        belongs: The choices that have a field, by field.

    Raises:
        ValidationError: If a field of another choice was given.
    """
    fields = type(settings).model_fields
    for field, owners in belongs.items():
        value = getattr(settings, field)
        if name not in owners and value != fields[field].default:
            why = f"{field} belongs to {' and '.join(owners)}, not to {name}"
            raise at_field(type(settings), field, value, why)
