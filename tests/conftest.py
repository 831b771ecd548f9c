"""What every test may ask for."""

import gc
import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from fedat_service.errors import DataMissing
from workers.data.catalog import load
from workers.data.dataset import Dataset

# How long an example takes says more about who else uses the machine; pytest-timeout ends what hangs.
settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")

_GOLDEN = Path(__file__).parent / "golden" / "golden.json"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the golden numbers, so that `pytest -k golden` runs all of them, and laws.

    Coverage would take as long as a law's hundreds of examples do. It is not measured there: tests of single
    examples must reach the same lines.
    """
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.golden)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)


def pytest_collection_finish() -> None:
    """Spare the garbage collector all that was imported: it would look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    """`golden(case_id)` is one case of golden.json: its `inputs`, `outputs` and `rtol`."""
    cases = {case["id"]: case for case in json.loads(_GOLDEN.read_text())["cases"]}
    return cases.__getitem__


@pytest.fixture(scope="session")
def fashion_mnist() -> Dataset:
    """The real data set; without it a test is skipped, but fails where CI promised to install it."""
    try:
        return load("fashion-mnist")
    except DataMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def unbuilt(monkeypatch) -> Callable[[str, str], ModuleType]:
    """`unbuilt(module, extension)` is a module anew, as where no compiler built its extension."""

    def load_anew(module: str, extension: str) -> ModuleType:
        monkeypatch.setitem(sys.modules, extension, None)
        monkeypatch.delattr(extension, raising=False)
        spec = find_spec(module)
        bare = module_from_spec(spec)
        spec.loader.exec_module(bare)
        return bare

    return load_anew


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only loop that the project knows."""
    return "asyncio"
