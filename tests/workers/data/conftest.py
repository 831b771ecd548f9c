import os

import pytest

from fedat_service.errors import DataMissing
from workers.data.catalog import load


@pytest.fixture(scope="session")
def fashion_mnist():
    """The real data set; without it a test is skipped, but fails where CI promised to install it."""
    try:
        return load("fashion-mnist")
    except DataMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
