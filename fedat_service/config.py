"""The service's settings: read once, at the edge, from a file, the environment or the command line."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from fedat_service.coordinator.limits import Limits
from fedat_service.errors import ConfigError
from fedat_service.wire.complaints import complaint, first_of

_FILES: dict[str, Callable[[str], Any]] = {"fedat.toml": tomllib.loads, "fedat.yaml": yaml.safe_load}
"""Settings files of the working directory, and what reads them."""


def _read(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        settings = parse(path.read_text("utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise ConfigError(f"{path}: settings stand by their names, got {settings!r}")
    return settings


class ServiceSettings(BaseSettings):
    """Everything the service can be told; `FEDAT_PORT=9000` sets `port`, as does `fedat.toml`.

    Raises:
        ConfigError: If a value makes no sense, or a file cannot be read; the message names it.
    """

    model_config = SettingsConfigDict(
        env_prefix="FEDAT_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    rate: float = Field(
        1.0, gt=0, le=1e9, description="Federation seconds per second: 50 plays a minute in 1.2 s."
    )
    event_log: Path | None = Field(
        None, description="Folder for one JSON-lines event log a federation; in memory if not given."
    )
    keep_updates: bool = Field(
        False, description="Keep the updates beside the event log, so that `fedat replay` can verify it."
    )
    limits: Limits = Field(Limits(), description="Bounds; `FEDAT_LIMITS__MAX_WAIT_S=20` sets one.")

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - checked here
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise ConfigError(f"setting {complaint(first_of(error))}") from error
        except SettingsError as error:
            raise ConfigError(f"settings: {error}") from error

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.keep_updates and self.event_log is None:
            raise ValueError("keep_updates needs event_log: there is no log to keep them beside")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line before environment before files."""
        files = (InitSettingsSource(settings_cls, _read(Path(name), parse)) for name, parse in _FILES.items())
        return (init_settings, env_settings, *files)
