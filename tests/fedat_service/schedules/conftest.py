"""What some rounds cost."""

from collections.abc import Callable, Iterable

import pytest

from fedat_service.params import Manifest
from fedat_service.schedules.cycle import Cycle


@pytest.fixture(scope="session")
def cost() -> Callable[[Manifest, Iterable[Cycle]], int]:
    """Elements that one client uploads: FedLAMA's ``C = sum_l dim_l kappa_l`` (eq. 8), by sync."""

    def counted(manifest: Manifest, cycles: Iterable[Cycle]) -> int:
        sizes = {tensor.name: tensor.size for tensor in manifest.tensors if tensor.trainable}
        return sum(
            sizes.get(name, 0) for cycle in cycles for sync in cycle.syncs() for name in cycle.due(sync)
        )

    return counted
