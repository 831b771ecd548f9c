"""The real app in this process, spoken to over ASGI."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from fedat_service.coordinator.coordinator import Coordinator
from fedat_service.http.app import create_app
from fedat_service.params import Manifest, Model
from fedat_service.wire.bundle import Bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import make_codec
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import BUNDLE_TYPE, ManifestMessage, TensorMessage
from fedat_service.wire.settings import CodecSettings

TENSORS = (
    TensorMessage(name="conv.weight", shape=(4, 1, 3, 3)),
    TensorMessage(name="conv.bias", shape=(4,)),
    TensorMessage(name="norm.count", shape=(), dtype="int64"),
    TensorMessage(name="fc.weight", shape=(3, 5)),
)
MANIFEST: Manifest = ManifestMessage(tensors=TENSORS).to_manifest()


class StillClock:
    """Time that only a test moves."""

    rate = 1.0

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    async def sleep(self, duration_s: float) -> None:
        """A pause before another try passes at once; a deadline never comes by itself."""
        if duration_s > 1.0:
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)


@dataclass
class Service:
    """A client of one federation, at the level of bytes."""

    http: httpx.AsyncClient
    app: Any
    clock: StillClock
    name: str = "f"

    @property
    def coordinator(self) -> Coordinator:
        return self.app.state.context.registry.find(self.name)

    async def create(self, **fields: Any) -> httpx.Response:
        body = {"name": self.name, "method": "fedavg", "manifest": {"tensors": manifest_json()}, **fields}
        return await self.http.post("/v1/federations", json=body)

    async def register(self, *names: str, num_examples: int = 10) -> httpx.Response:
        for name in names:
            answer = await self.http.post(
                f"/v1/federations/{self.name}/clients", json={"name": name, "num_examples": num_examples}
            )
        return answer

    async def task(self, client: str, wait: float = 0) -> httpx.Response:
        return await self.http.get(
            f"/v1/federations/{self.name}/clients/{client}/task", params={"wait": wait}
        )

    async def put(self, task: str, body: bytes, content_type: str = BUNDLE_TYPE) -> httpx.Response:
        return await self.http.put(
            f"/v1/federations/{self.name}/tasks/{task}/update",
            content=body,
            headers={"Content-Type": content_type},
        )

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(f"/v1/federations/{self.name}{path}", **options)

    def update(self, model: Model | None = None, **fields: Any) -> bytes:
        """A good update from version 0, but for what `fields` change."""
        name, precision = fields.pop("codec", "float32"), fields.pop("precision", 4)
        codec = make_codec(CodecSettings(name=name, precision=precision))
        layers = fields.pop("layers", MANIFEST.layers)
        entries = model_entries(model or some_model(), MANIFEST, MANIFEST.select(layers), codec)
        header = {"federation": self.name, "base_version": 0, "num_examples": 10, "entries": entries}
        return encode_bundle(Bundle(**{**header, **fields}))

    def some_model(self, value: float = 0.25) -> Model:
        return some_model(value)

    @property
    def manifest(self) -> Manifest:
        return MANIFEST

    async def started(self, *clients: str, **fields: Any) -> list[str]:
        """Create, register `clients`, and return the names of their tasks."""
        rounds = {"cohort_size": len(clients), "start_clients": len(clients)}
        (await self.create(rounds=rounds, **fields)).raise_for_status()
        await self.register(*clients)
        return [(await self.task(client)).json()["task"] for client in clients]

    async def model(self, **params: Any) -> Bundle:
        return parse_bundle((await self.get("/model", params=params)).content, MANIFEST)


def manifest_json() -> list[dict[str, Any]]:
    return [tensor.model_dump(mode="json", exclude_none=True) for tensor in TENSORS]


def some_model(value: float = 0.25) -> Model:
    return Model(np.full(MANIFEST.num_floats, value, np.float32), np.full(MANIFEST.num_integers, 3, np.int64))


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    clock = StillClock()
    app = create_app(make_clock=lambda _: clock)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            yield Service(http, app, clock)
