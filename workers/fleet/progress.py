"""A fleet with a line that says how its federation does."""

import asyncio
from contextlib import suppress
from itertools import count

import numpy as np
from rich.console import Console
from rich.text import Text

from fedat_service.clock import LoopClock
from fedat_service.errors import NotNow
from fedat_service.wire.views import AccuracyPoint, FederationView
from workers.client import FedATClient, Retry, open_http
from workers.fleet.launch import launch
from workers.fleet.settings import FleetSettings
from workers.worker import Tally

_LOOK_EVERY_S = 1.0
_LOOKS_PER_EVALUATION = 5
"""Time series are long: they are asked for less often."""


async def run_visibly(settings: FleetSettings, console: Console) -> Tally:
    """Run a fleet; on a terminal a line changes every second, elsewhere lines come with the evaluations.

    Raises:
        FedATError: As `launch`; before that if there is no such service or federation.
    """
    async with open_http(settings.url) as http:
        retry = Retry(total_s=5.0)
        client = FedATClient(http, settings.federation, jitter=np.random.default_rng(), retry=retry)
        await client.view()
        watching = asyncio.create_task(_watch(client, console))
        try:
            tally = await launch(settings)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    async with open_http(settings.url) as http:
        client = FedATClient(http, settings.federation, jitter=np.random.default_rng(), retry=retry)
        view = await client.view()
        console.print(f"{view.name}: {describe(view, await newest_evaluation(client))}", highlight=False)
    return tally


async def _watch(client: FedATClient, console: Console) -> None:
    evaluated: AccuracyPoint | None = None
    shown = ""
    with console.status("starting") as status:
        for look in count():
            try:
                view = await client.view()
                if view.status == "finished":
                    return
                if look % _LOOKS_PER_EVALUATION == 0:
                    evaluated = await newest_evaluation(client)
                text, state = f"{view.name}: {describe(view, evaluated)}", f"{view.status} {evaluated}"
            except NotNow as error:
                text = state = str(error)
            status.update(Text(text))
            if not console.is_terminal and state != shown:
                console.print(text, highlight=False)
            shown = state
            await LoopClock().sleep(_LOOK_EVERY_S)


async def newest_evaluation(client: FedATClient) -> AccuracyPoint | None:
    """What is known of a federation's newest version that was evaluated, if one was."""
    points = (await client.metrics()).evaluations
    return points[-1] if points else None


def describe(view: FederationView, evaluated: AccuracyPoint | None) -> str:
    """One line on a federation: status, simulated time, version, accuracy, updates by tier, clients."""
    words = [view.status, f"{view.now_s:,.0f} s", f"version {view.version}"]
    if evaluated is not None:
        words.append(f"accuracy {evaluated.accuracy:.3f} (version {evaluated.version})")
    if len(view.update_counts) > 1:
        words.append(f"tiers {' '.join(map(str, view.update_counts))}")
    lost = f" ({view.lost_clients} lost)" if view.lost_clients else ""
    words.append(f"{view.clients} clients{lost}")
    return ", ".join(words)
