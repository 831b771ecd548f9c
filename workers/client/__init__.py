"""The way to the service: requests that insist, bundles that are checked, one small client."""

from workers.client.client import FedATClient
from workers.client.connection import AppConnection, Connection, open_http
from workers.client.exchange import Retry
from workers.client.models import GlobalModel, ModelCache

__all__ = [
    "AppConnection",
    "Connection",
    "FedATClient",
    "GlobalModel",
    "ModelCache",
    "Retry",
    "open_http",
]
