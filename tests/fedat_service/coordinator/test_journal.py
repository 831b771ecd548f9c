import asyncio

import pytest
from structlog.testing import capture_logs

from fedat_service.coordinator.journal import Command, Journal
from fedat_service.errors import NotNow
from fedat_service.store.memory import MemoryStore


async def run_into(error):
    """A journal whose decisions meet an error."""

    async def never(_):
        raise AssertionError

    def decide(_):
        raise error

    journal = Journal("f", MemoryStore(), None, never, lambda: asyncio.sleep(0))
    with pytest.raises(NotNow, match="met a defect"):
        await journal.enter(Command(decide))


def test_a_defect_is_logged():
    with capture_logs() as logs:
        asyncio.run(run_into(RuntimeError("a bug")))
    assert [line["event"] for line in logs] == ["defect"]


def test_the_end_of_the_process_is_no_defect():
    with capture_logs() as logs, pytest.raises(SystemExit):
        asyncio.run(run_into(SystemExit(143)))
    assert logs == []
