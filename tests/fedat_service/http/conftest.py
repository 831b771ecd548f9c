"""A small federation whose updates are rounded differences, down to the numbers and the bytes."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import numpy as np
import pytest

from fedat_service.params import Manifest, Model, TensorSpec, to_params
from fedat_service.wire.bundle import Bundle, encode_bundle, parse_bundle
from fedat_service.wire.codecs import Float32
from fedat_service.wire.differences import update_entries
from fedat_service.wire.entries import model_entries
from fedat_service.wire.messages import BUNDLE_TYPE, ManifestMessage
from fedat_service.wire.settings import CodecSettings

OTHERS = (0.5, 0.25, 0.125)


class Uniforms:
    """A generator whose numbers are known."""

    def __init__(self, numbers):
        self.numbers = numbers

    def random(self, size):
        return np.array(self.numbers[:size])


def model_of(weights, others=OTHERS, count=3):
    return Model(np.array([*weights, *others], np.float32), np.array([count]))


@dataclass
class TwoWeights:
    """A federation `f` of two weights, and statistics that do not learn."""

    service: Any
    codec: Mapping[str, Any]
    manifest = Manifest(
        (
            TensorSpec("fc.weight", (2,), "float32", "fc"),
            TensorSpec("norm.var", (3,), "float32", "norm", trainable=False),
            TensorSpec("norm.count", (), "int64", "norm", trainable=False),
        )
    )

    async def create(self, **fields: Any) -> None:
        answer = await self.service.create(
            **{"method": {"participation": {"name": "fedavg"}, "codec": self.codec}, **fields},
            manifest=ManifestMessage.of(self.manifest).model_dump(mode="json"),
            initial_model="upload",
        )
        answer.raise_for_status()

    async def start(
        self,
        weights: Sequence[float],
        *clients: str,
        server: Any = None,
        participation: str = "fedavg",
        directions: str = "up",
        phi: int = 1,
    ) -> list[str]:
        """Begin at these weights; the clients' tasks."""
        method = {
            "participation": {"name": participation},
            "server": server or {"name": "average"},
            "codec": {**self.codec, "directions": directions},
            "schedule": {"name": "fedlama", "phi": phi},
        }
        rounds = {"cohort_size": len(clients), "start_clients": len(clients)}
        await self.create(method=method, rounds=rounds)
        (await self.put_model(self.values(weights, version=0))).raise_for_status()
        for name in clients:
            client = {"name": name, "num_examples": 10, "codecs": ["float32", self.codec["name"]]}
            (await self.service.http.post("/v1/federations/f/clients", json=client)).raise_for_status()
        return [await self.task(name) for name in clients]

    async def task(self, client: str) -> str:
        """The client's task."""
        return (await self.service.task(client)).json()["task"]

    async def put_model(self, body: bytes) -> httpx.Response:
        """Upload the initial model."""
        path = "/v1/federations/f/model"
        return await self.service.http.put(path, content=body, headers={"Content-Type": BUNDLE_TYPE})

    async def put(self, task: str, body: bytes) -> None:
        """Send an update that is taken."""
        assert (await self.service.put(task, body)).status_code == 201

    async def newest(self) -> list[list[float]]:
        """The newest version, tensor by tensor."""
        entries = self.parse((await self.service.get("/model")).content).entries
        assert {entry.reference for entry in entries} == {"absolute"}
        return [entry.codec.decode(entry.payload, entry.tensor.size).tolist() for entry in entries]

    def parse(self, body: bytes) -> Bundle:
        return parse_bundle(body, self.manifest)

    def values(self, weights: Sequence[float], **header: Any) -> bytes:
        """Weights as float32."""
        entries = model_entries(model_of(weights), self.manifest, self.manifest.tensors, Float32())
        return encode_bundle(Bundle("f", entries, **header))

    def update(
        self,
        base: Sequence[float],
        to: Sequence[float],
        uniforms=(0, 0),
        *,
        version=0,
        others=OTHERS,
        **codec: Any,
    ) -> bytes:
        """Differences in the federation's codec, or that codec with other members."""
        entries = update_entries(
            to_params(model_of(to, others), self.manifest),
            to_params(model_of(base), self.manifest),
            self.manifest.tensors,
            CodecSettings(**{**self.codec, **codec}),
            Uniforms(uniforms),
        )
        return encode_bundle(Bundle("f", entries, base_version=version, num_examples=10))

    def changed(self, at: int, **members: Any) -> bytes:
        """A good update whose entry says something else."""
        bundle = self.parse(self.update([1, 1], [2, 1]))
        entry = replace(bundle.entries[at], **members)
        entry = replace(entry, crc32=zlib.crc32(entry.payload))
        entries = (*bundle.entries[:at], entry, *bundle.entries[at + 1 :])
        return encode_bundle(replace(bundle, entries=entries))


@pytest.fixture(params=[{"name": "qsgd", "levels": 2}, {"name": "affine8"}], ids=["qsgd", "affine8"])
def two_weights(service, request):
    """In each of the codecs, or in those that a test names."""
    return TwoWeights(service, request.param)
