"""Commands of the service: `serve` and `doctor`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from fedat_service.config import ServiceSettings
from fedat_service.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)
    app.command()(doctor)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (8080); 0 takes a free one.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Federation seconds per second (1). 50 plays a minute in 1.2 s.")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(help="Folder for event logs, one JSON-lines file a federation.")
    ] = None,
) -> None:
    """Start the aggregation service.

    What is not given here is read from the environment (FEDAT_PORT=9000) and from fedat.toml or fedat.yaml.
    The interactive API is at /docs, its description at /openapi.json.
    """
    given = {"host": host, "port": port, "rate": rate, "event_log": event_log}
    settings = _settings({name: value for name, value in given.items() if value is not None})
    # Imported here: `fedat --help` should not wait for a web framework.
    from fedat_service.http.app import create_app
    from fedat_service.http.server import serve as run
    from fedat_service.store.jsonl import JsonLinesStore

    Console(stderr=True).print(
        f"FedAT service on http://{settings.host}:{settings.port} (API: /docs), "
        f"{settings.rate:g} federation seconds a second"
    )
    store = None if settings.event_log is None else JsonLinesStore(settings.event_log)
    app = create_app(settings.limits, rate=settings.rate, store=store)
    run(app, settings.host, settings.port)


def _settings(given: dict[str, Any]) -> ServiceSettings:
    try:
        return ServiceSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"setting {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def doctor() -> None:
    """Say which codec backend runs, and hold it against the reference package."""
    from fedat_service.wire.selfcheck import check_codec

    report = check_codec()
    table = Table(title=f"polyline codec: backend {report.backend}")
    table.add_column("check")
    table.add_column("result")
    for finding in report.findings:
        table.add_row(finding.name, "[green]ok[/green]" if finding.ok else f"[red]{finding.detail}[/red]")
    Console().print(table)
    if not report.ok:
        raise ConfigError("the codec disagrees with its reference: do not use this build")
