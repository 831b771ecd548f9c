"""Creating a federation for a model that a fleet will train."""

from dataclasses import dataclass

import numpy as np

from fedat_service.params import Params
from fedat_service.wire.messages import CreateFederation, ManifestMessage
from fedat_service.wire.views import FederationView
from workers.client import FedATClient, ModelCache, Retry, open_http
from workers.fleet.population import build_model, is_own, load_dataset
from workers.fleet.settings import FleetSettings
from workers.models.state import manifest_of, params_of
from workers.training.jobs import InlineExecutor

_SOON = Retry(total_s=5.0)
"""Somebody sits at the terminal."""


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """A model before its training; `is_own` if it is the user's, whose weights the service cannot draw."""

    manifest: ManifestMessage
    params: Params
    is_own: bool


def describe_model(settings: FleetSettings) -> DescribedModel:
    """Build the model of a fleet and describe it."""
    module = build_model(settings.model, load_dataset(settings), settings.seed)
    manifest = ManifestMessage.of(manifest_of(module))
    return DescribedModel(manifest, params_of(module), is_own(settings.model))


async def create_federation(url: str, message: CreateFederation, model: DescribedModel) -> FederationView:
    """Create a federation; upload the initial model if it waits for one."""
    async with open_http(url) as http:
        client = FedATClient(http, message.name, jitter=np.random.default_rng(), retry=_SOON)
        view = await client.create_federation(message)
        if message.initial_model == "glorot":
            return view
        models = ModelCache(message.name, message.manifest.to_manifest(), InlineExecutor())
        await client.upload_model(model.params, models)
        return await client.view()
