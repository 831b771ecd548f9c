"""Looks at the newest version from time to time, and reports how it does for every client."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fedat_service.clock import Clock
from fedat_service.errors import ServiceRefused
from fedat_service.params import Params
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.messages import ClientEvaluation
from fedat_service.wire.views import FederationView
from workers.client import FedATClient, ModelCache
from workers.training.jobs import Job

_MOMENT_S = 0.2
"""Real seconds between two looks at a federation that has sent its clients home and publishes the rest."""

Evaluate = Callable[[Params, float], Job[Sequence[ClientEvaluation]]]


class Observer:
    """Evaluates versions at a fixed cadence, and the last one when the federation is finished.

    Args:
        client: Its own way to the service.
        models: Where fetched models are decoded.
        clock: The federation's time.
        evaluate: Starts to find what a version is worth to each client, by a time in federation seconds.
        every_s: The cadence, in federation seconds.
    """

    def __init__(
        self,
        client: FedATClient,
        models: ModelCache,
        clock: Clock,
        evaluate: Evaluate,
        every_s: float,
    ) -> None:
        self._client = client
        self._models = models
        self._clock = clock
        self._evaluate = evaluate
        self._every_s = every_s
        self._seen: int | None = None
        self._evaluating: Job[Sequence[ClientEvaluation]] | None = None

    async def run(self, finished: asyncio.Event) -> None:
        """Observe until the federation is finished: then its last version is published, and evaluated too.

        Args:
            finished: Set by whoever learns first that no work is left, so that the last look need not wait.
        """
        while True:
            view = await self._client.view()
            await self._report()
            if view.status != "awaiting-model":
                await self._look(view)
            if view.status == "finished":
                await self._report()
                return
            if finished.is_set():
                await self._clock.sleep(_MOMENT_S * self._clock.rate)
            else:
                await _first(self._clock.sleep(self._every_s), finished.wait())

    async def _look(self, view: FederationView) -> None:
        """Start evaluating the newest version; the next look reports, so that nobody waits for it."""
        model = await self._client.fetch_newest(self._models, make_codec(view.method.codec))
        if model.version != self._seen:
            self._seen = model.version
            self._evaluating = self._evaluate(model.params, self._clock.now() + self._every_s)

    async def _report(self) -> None:
        """Report what the last look started."""
        if self._evaluating is None or self._seen is None:
            return
        clients, self._evaluating = await self._evaluating.result(), None
        try:
            if clients:
                await self._client.post_evaluations(self._seen, clients)
        except ServiceRefused as refusal:
            # Another observer, or an earlier run of this fleet, was there first.
            if refusal.status != 409:
                raise


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first of several waits; none of them is a request."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
