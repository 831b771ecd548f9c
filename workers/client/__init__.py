"""The way to the service: requests that insist, bundles that are checked, one small client."""

from workers.client.client import FedATClient
from workers.client.exchange import Retry, open_http
from workers.client.models import GlobalModel, ModelCache

__all__ = ["FedATClient", "GlobalModel", "ModelCache", "Retry", "open_http"]
