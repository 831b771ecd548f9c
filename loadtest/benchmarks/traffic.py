"""The real protocol without the training: a federation's clients, played by a few keep-alive connections."""

import http
import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from time import perf_counter
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel

from fedat_service.errors import ServiceRefused
from fedat_service.params import Manifest, Model, TensorSpec
from fedat_service.wire.bundle import Bundle, encode_bundle
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import (
    BUNDLE_TYPE,
    CLIENT_TASK,
    CLIENTS,
    FEDERATIONS,
    MODEL,
    TIERS,
    UPDATE,
    CreateFederation,
    ManifestMessage,
    RegisterClient,
    Task,
)
from fedat_service.wire.settings import CodecSettings, Method, Participation, Rounds
from fedat_service.wire.views import TiersView

CODEC = CodecSettings(name="polyline", precision=4, layout="pairs")
"""FedAT's own: every client of the benchmarks sends it."""

MANIFEST = Manifest((TensorSpec("fc.weight", (1000, 1000), "float32", "fc"),))
"""A model of a million parameters."""

_NUM_EXAMPLES = 100
_WEIGHT_SCALE = 0.05
"""Standard deviation of a trained CNN's weights: what decides the length of a polyline."""
_DEADLINE_S = 1e6
_TIMEOUT_S = 120.0


class Connection:
    """One keep-alive HTTP connection: as little client as possible.

    Args:
        url: Address of a server, `http://host:port`.
    """

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._http = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def send(self, method: str, path: str, body: BaseModel | bytes | None = None) -> bytes:
        """Send a message or a bundle and return the answer's body.

        Raises:
            ServiceRefused: If the answer is an error.
        """
        is_message = isinstance(body, BaseModel)
        content = body.model_dump_json().encode() if isinstance(body, BaseModel) else body
        headers = {} if body is None else {"Content-Type": "application/json" if is_message else BUNDLE_TYPE}
        self._http.request(method, path, content, headers)
        response = self._http.getresponse()
        answer = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ServiceRefused(f"{method} {path}: {answer[:300]!r}", response.status, response.reason)
        return answer


def random_model(seed: int) -> Model:
    """Values for `MANIFEST` that look like trained weights."""
    values = np.random.default_rng(seed).normal(0, _WEIGHT_SCALE, MANIFEST.num_floats)
    return Model(values.astype(np.float32), np.empty(0, np.int64))


def open_federation(connection: Connection, name: str, num_clients: int, cohort_size: int) -> tuple[str, ...]:
    """Create a one-tier federation and register its clients: it trains from then on.

    Returns:
        The names of the clients.
    """
    method = Method(participation=Participation(name="fedavg"), codec=CODEC)
    rounds = Rounds(cohort_size=cohort_size, deadline_s=_DEADLINE_S, start_clients=num_clients)
    message = CreateFederation(name=name, method=method, manifest=ManifestMessage.of(MANIFEST), rounds=rounds)
    connection.send("POST", FEDERATIONS, message)
    names = tuple(f"client-{k:05d}" for k in range(num_clients))
    for client in names:
        registration = RegisterClient(name=client, num_examples=_NUM_EXAMPLES)
        connection.send("POST", CLIENTS.format(federation=name), registration)
    return names


def fetch_task(connection: Connection, federation: str, client: str) -> Task:
    """The client's task; there must be one."""
    path = CLIENT_TASK.format(federation=federation, client=client)
    return Task.model_validate_json(connection.send("GET", f"{path}?wait=30"))


def fetch_model(connection: Connection, task: Task) -> None:
    """Download the model that the task starts from."""
    path = MODEL.format(federation=task.federation)
    connection.send("GET", f"{path}?version={task.base_version}&task={task.task}")


def update_path(task: Task) -> str:
    """Where the task's update goes."""
    return UPDATE.format(federation=task.federation, task=task.task)


def encode_update(task: Task, model: Model) -> bytes:
    """The bundle that answers the task with `model`."""
    entries = model_entries(model, MANIFEST, MANIFEST.named(task.up["weights"]), make_codec(task.codec))
    header = Bundle(
        federation=task.federation,
        base_version=task.base_version,
        num_examples=_NUM_EXAMPLES,
        entries=entries,
    )
    return encode_bundle(header)


def cohort_of(connection: Connection, federation: str) -> tuple[str, ...]:
    """The clients of the only tier's round."""
    view = _tiers(connection, federation)
    return next((current.cohort for current in view.tiers[0].rounds), ())


def count_reported(connection: Connection, federation: str) -> int:
    """How many updates the only tier's round has taken in."""
    view = _tiers(connection, federation)
    return sum(len(current.reported) for current in view.tiers[0].rounds)


def _tiers(connection: Connection, federation: str) -> TiersView:
    return TiersView.model_validate_json(connection.send("GET", TIERS.format(federation=federation)))


def put_all(url: str, paths: Sequence[str], body: bytes, num_connections: int) -> float:
    """PUT `body` to every path, over a few connections at once; returns the seconds it took.

    The connections are open before the clock starts.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(Connection(url))) for _ in range(num_connections)]
        for connection in connections:
            connection.send("GET", "/readyz")
        pool = stack.enter_context(ThreadPoolExecutor(num_connections))
        start_s = perf_counter()
        puts = [
            pool.submit(_put, connection, paths[i::num_connections], body)
            for i, connection in enumerate(connections)
        ]
        for put in puts:
            put.result()
        return perf_counter() - start_s


def _put(connection: Connection, paths: Sequence[str], body: bytes) -> None:
    for path in paths:
        connection.send("PUT", path, body)
