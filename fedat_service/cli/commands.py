"""Commands of the service: `serve`, `methods`, `replay` and `doctor`."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedat_service.cli.methods import methods
from fedat_service.config import ServiceSettings
from fedat_service.errors import ConfigError, LogDamaged

if TYPE_CHECKING:
    from fedat_service.store.jsonl import JsonLinesStore


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)
    app.command()(methods)
    app.command()(replay)
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
    keep_updates: Annotated[
        bool | None, typer.Option(help="Keep the updates beside the log, so that `replay` can verify it.")
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End when standard input does: whoever started it is gone.")
    ] = False,
) -> None:
    """Start the aggregation service.

    What is not given here is read from the environment (FEDAT_PORT=9000) and from fedat.toml or fedat.yaml.
    The interactive API is at /docs, its description at /openapi.json.
    """
    given = {
        "host": host,
        "port": port,
        "rate": rate,
        "event_log": event_log,
        "keep_updates": keep_updates,
    }
    settings = ServiceSettings(**{name: value for name, value in given.items() if value is not None})
    # Imported here: `fedat --help` should not wait for a web framework.
    from fedat_service.http.app import create_app
    from fedat_service.http.server import listen, port_of
    from fedat_service.http.server import serve as run

    app = create_app(settings.limits, rate=settings.rate, store=_store(settings))
    sockets = listen(settings.host, settings.port)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    Console(stderr=True, markup=False, emoji=False).print(
        f"FedAT service on http://{host}:{port_of(sockets[0])} (API: /docs), "
        f"{settings.rate:g} federation seconds a second",
        soft_wrap=True,
    )
    if until_eof:
        threading.Thread(target=_end_with_input, daemon=True).start()
    run(app, sockets)


def _end_with_input() -> None:
    """Read standard input to its end, then go down as on a signal."""
    while os.read(sys.stdin.fileno(), 1 << 16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _store(settings: ServiceSettings) -> "JsonLinesStore | None":
    """Where events are kept, if not in memory."""
    from fedat_service.store.folder import make_folder
    from fedat_service.store.jsonl import JsonLinesStore

    if settings.event_log is None:
        return None
    folder = make_folder(settings.event_log, "setting event_log")
    return JsonLinesStore(folder, keeps_bodies=settings.keep_updates)


def replay(
    log: Annotated[Path, typer.Argument(help="An event log, ....events.jsonl.", exists=True, dir_okay=False)],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compute every version again and compare it, bit for bit.")
    ] = False,
) -> None:
    """Play a federation again from its event log.

    With --verify every version is computed anew from the updates that were kept beside the log, and its
    digest compared with the one that the log holds; a difference is an error.
    """
    from fedat_service.coordinator.replay import replay as play

    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    for one in play(log, verify=verify):
        state = one.state
        console.print(
            f"{state.spec.name}: {state.status} at version {state.version}, {len(state.clients)} clients, "
            f"rounds by tier {list(state.update_counts)}, weights {[round(w, 3) for w in state.weights]}"
        )
        if verify:
            console.print(f"{len(one.verified)} versions verified")
        if one.differing:
            raise LogDamaged(f"{log}: version {one.differing[0]} comes out differently from its digest")


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
