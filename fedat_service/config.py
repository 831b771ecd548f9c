"""The service's settings: read once, at the edge, from a file, the environment or the command line."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
    YamlConfigSettingsSource,
)

from fedat_service.coordinator.limits import Limits


class ServiceSettings(BaseSettings):
    """Everything the service can be told; `FEDAT_PORT=9000` sets `port`, as does `fedat.toml`."""

    model_config = SettingsConfigDict(
        env_prefix="FEDAT_",
        env_nested_delimiter="__",
        toml_file="fedat.toml",
        yaml_file="fedat.yaml",
        frozen=True,
        extra="forbid",
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    rate: float = Field(1.0, gt=0, description="Federation seconds per second: 50 plays a minute in 1.2 s.")
    event_log: Path | None = Field(
        None, description="Folder for one JSON-lines event log a federation; in memory if not given."
    )
    keep_updates: bool = Field(
        False, description="Keep the updates beside the event log, so that `fedat replay` can verify it."
    )
    limits: Limits = Field(Limits(), description="Bounds; `FEDAT_LIMITS__MAX_WAIT_S=20` sets one.")

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
        return (
            init_settings,
            env_settings,
            TomlConfigSettingsSource(settings_cls),
            YamlConfigSettingsSource(settings_cls),
        )
