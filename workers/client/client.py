"""A federation as its clients, its operators and its observers see it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, ValidationError

from fedat_service.clock import LoopClock
from fedat_service.errors import WireError
from fedat_service.params import Params
from fedat_service.wire.bundle import Bundle, max_bundle_bytes
from fedat_service.wire.codecs import Codec, Float32, make_codec
from fedat_service.wire.complaints import complaint, first_of, place_of
from fedat_service.wire.differences import DIFFERENCES, updates_differ
from fedat_service.wire.messages import (
    BUNDLE_TYPE,
    CLIENT_TASK,
    CLIENTS,
    EVALUATIONS,
    FEDERATION,
    FEDERATIONS,
    METRICS,
    MODEL,
    TASK_EVALUATION,
    TIERS,
    UPDATE,
    ClientEvaluation,
    CreateFederation,
    EvaluateVersion,
    Evaluation,
    RegisterClient,
    Task,
)
from fedat_service.wire.settings import Slot
from fedat_service.wire.views import ClientView, FederationView, MetricsView, TiersView
from workers.client.connection import Connection, Request, Response
from workers.client.exchange import Exchange, Retry, retry_after_s
from workers.client.models import GlobalModel, Key, ModelCache, Wanted

Message = TypeVar("Message", bound=BaseModel)

_POLL_SLACK_S = 30.0
"""How much longer than a long-poll its client waits before it gives the connection up."""

_ROUNDING_STREAM = 3
"""Purpose number of the generator that rounds a task's update."""


class FedATClient:
    """Everything that can be asked of one federation.

    Every method raises `NotNow` if the service was out of reach or busy for as long as `retry` allows,
    `ServiceRefused` with the HTTP status if it refuses, and `WireError` if its answer makes no sense.

    Args:
        connection: This client's own way to the service: see `open_http`.
        federation: Name of the federation.
        jitter: Draws the back-off between attempts.
        retry: How long to insist.
        accept_encoding: Content encodings asked for with bundles; polyline gains little from more.
    """

    def __init__(
        self,
        connection: Connection,
        federation: str,
        *,
        jitter: np.random.Generator,
        retry: Retry | None = None,
        accept_encoding: str = "identity",
    ) -> None:
        self.federation = federation
        self._exchange = Exchange(connection, retry or Retry(), jitter)
        self._accept_encoding = accept_encoding
        self._held: Key | None = None
        self._kept: asyncio.Future[GlobalModel] | None = None
        self._base: Params = {}

    async def create_federation(self, message: CreateFederation) -> FederationView:
        """Create the federation; the very same message again finds it."""
        return _read(FederationView, await self._post(FEDERATIONS, message))

    async def upload_model(self, params: Params, models: ModelCache) -> None:
        """Send the initial model of a federation that was created with `initial_model="upload"`."""
        header = Bundle(federation=self.federation, version=0, entries=())
        body = await models.encode(header, params, Float32())
        await self._put(self._path(MODEL), body)

    async def view(self) -> FederationView:
        """What the federation is and where it stands."""
        return _read(FederationView, await self._get(self._path(FEDERATION)))

    async def tiers(self) -> TiersView:
        """The live tier view."""
        return _read(TiersView, await self._get(self._path(TIERS)))

    async def metrics(self) -> MetricsView:
        """Versions, evaluations and communication volume over time."""
        return _read(MetricsView, await self._get(self._path(METRICS)))

    async def stop(self) -> FederationView:
        """End the federation; its results stay readable."""
        return _read(FederationView, await self._exchange.send(Request("DELETE", self._path(FEDERATION))))

    async def forget(self) -> FederationView:
        """End the federation and let go of its results: its name is free again."""
        request = Request("DELETE", self._path(FEDERATION), {"forget": "true"})
        return _read(FederationView, await self._exchange.send(request))

    async def register(self, message: RegisterClient) -> ClientView:
        """Register a client; the same name again is the same client."""
        return _read(ClientView, await self._post(self._path(CLIENTS), message))

    async def next_task(self, client: str, wait_s: float) -> Task | None:
        """Wait for the client's task, the same one until it is done or its lease ends.

        Args:
            client: Name of the client.
            wait_s: How long the service may wait for work, in real seconds.

        Returns:
            None if there was none, after the time that the service asks to wait before the next call.

        Raises:
            ServiceRefused: With status 410 if the federation is finished, 404 if the service does not know
                the client (any more).
        """
        path = self._path(CLIENT_TASK, client=client)
        query = {"wait": str(wait_s)}
        answer = await self._exchange.send(Request("GET", path, query, read_s=wait_s + _POLL_SLACK_S))
        if answer.status == 204:
            await LoopClock().sleep(retry_after_s(answer))
            return None
        task = _read(Task, answer)
        if (task.federation, task.client) != (self.federation, client):
            raise WireError(f"{client!r} got a task of {task.client!r} in {task.federation!r}", "task")
        return task

    async def fetch_model(self, task: Task, models: ModelCache) -> GlobalModel:
        """Fetch what a task begins with; what the client holds is not sent again.

        Raises:
            ServiceRefused: With status 404 or 410 if the task or the version is over.
            WireError: If the bytes are not what was asked for.
        """
        return await self._fetch_for(task, {"task": task.task}, task.down, models)

    async def fetch_base(self, task: Task, models: ModelCache) -> GlobalModel:
        """Fetch the whole model that a task begins with, for a client that has lost its own.

        Raises:
            ServiceRefused: With status 404 or 410 if the version is gone.
            WireError: If the bytes are not what was asked for.
        """
        query = {"task": task.task, "layers": ",".join(models.manifest.layers)}
        return await self._fetch_for(task, query, _whole(models), models)

    async def _fetch_for(
        self, task: Task, query: dict[str, str], wanted: Wanted, models: ModelCache
    ) -> GlobalModel:
        differs = updates_differ(task.codec)
        model = await self._fetch(query, wanted, models, make_codec(task.codec), keeps=differs)
        if model.version != task.base_version:
            raise WireError(f"asked for version {task.base_version}, got {model.version}", "version")
        if differs:
            # Every tensor as it was last fetched.
            self._base = {**(self._base if task.sync else {}), **model.params}
        return model

    async def fetch_newest(self, models: ModelCache, codec: Codec) -> GlobalModel:
        """Fetch the newest version of the whole model, which travels in `codec`."""
        return await self._fetch({}, _whole(models), models, codec)

    async def _fetch(
        self, query: dict[str, str], wanted: Wanted, models: ModelCache, codec: Codec, *, keeps: bool = False
    ) -> GlobalModel:
        known = models.get(self._held) or self._kept
        headers = {"Accept": BUNDLE_TYPE, "Accept-Encoding": self._accept_encoding}
        if self._held is not None and known is not None:
            headers |= {"If-None-Match": self._held, "A-IM": DIFFERENCES}
        limit = max_bundle_bytes(models.manifest, codec, Float32(), num_slots=len(wanted))
        request = Request("GET", self._path(MODEL), query, headers, max_bytes=limit)
        answer = await self._exchange.send(request)
        if answer.status == 304:
            if known is None:
                raise WireError("304 for a model that this client does not hold", "etag")
            model = await asyncio.shield(known)
        else:
            base = await asyncio.shield(known) if answer.status == 226 and known is not None else None
            self._held, self._kept = answer.headers.get("etag"), None
            model = await models.decode(self._held, answer.body, wanted, base)
            known = models.get(self._held)
        # Where differences travel, they may be to this one, long after the cache has forgotten it.
        self._kept = known if keeps else None
        return model

    async def put_update(
        self, task: Task, slots: Mapping[Slot, Params], num_examples: int, models: ModelCache
    ) -> None:
        """Send a task's result: the tensors it asks for. The same bytes again are counted once.

        Where differences travel, they are those to each tensor as it was last fetched.

        Raises:
            WireError: If a tensor was not fetched, or a value cannot be carried.
            ServiceRefused: With status 410 or 404 if the task is over: ask for a new one.
        """
        header = Bundle(
            federation=self.federation,
            base_version=task.base_version,
            num_examples=num_examples,
            entries=(),
        )
        rng = np.random.default_rng((_ROUNDING_STREAM, task.seed, task.sync))
        body = await models.encode_update(header, slots, self._base, task.up, task.codec, rng)
        await self._put(self._path(UPDATE, task=task.task), body)

    async def put_evaluation(self, task: Task, evaluation: Evaluation) -> None:
        """Report how the model of a task does on the client's own test split."""
        await self._post(self._path(TASK_EVALUATION, task=task.task), evaluation)

    async def post_evaluations(self, version: int, clients: Sequence[ClientEvaluation]) -> None:
        """Report how a version does on many clients' test splits.

        Raises:
            ServiceRefused: With status 409 if the version was evaluated with other numbers.
        """
        await self._post(self._path(EVALUATIONS), EvaluateVersion(version=version, clients=tuple(clients)))

    async def _get(self, path: str) -> Response:
        return await self._exchange.send(Request("GET", path))

    def _path(self, template: str, **names: str) -> str:
        quoted = {key: quote(name, safe="") for key, name in names.items()}
        return template.format(federation=quote(self.federation, safe=""), **quoted)

    async def _post(self, path: str, message: BaseModel) -> Response:
        body = message.model_dump_json(exclude_none=True).encode()
        headers = {"Content-Type": "application/json"}
        return await self._exchange.send(Request("POST", path, headers=headers, content=body))

    async def _put(self, path: str, body: bytes) -> Response:
        headers = {"Content-Type": BUNDLE_TYPE}
        return await self._exchange.send(Request("PUT", path, headers=headers, content=body))


def _whole(models: ModelCache) -> Wanted:
    return {"weights": tuple(tensor.name for tensor in models.manifest.tensors)}


def _read(message: type[Message], answer: Response) -> Message:
    try:
        return message.model_validate_json(answer.body)
    except ValidationError as error:
        first = first_of(error)
        raise WireError(
            f"the service's {message.__name__} is wrong: {complaint(first)}", place_of(first) or "body"
        ) from error
