"""Every store keeps the same promises."""

import json
import resource
import signal

import pytest

from fedat_service.errors import ConfigError, NotFound, WireError
from fedat_service.federation.events import ClientRegistered, Stopped, from_record, to_record
from fedat_service.store.base import Record
from fedat_service.store.jsonl import JsonLinesStore
from fedat_service.store.memory import MemoryStore

EVENTS = (ClientRegistered(0.1, "a", 10), ClientRegistered(0.30000000000000004, "b", 7), Stopped(9.0, "end"))


@pytest.fixture(params=["memory", "jsonl"])
async def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else JsonLinesStore(tmp_path / "logs")
    yield store
    await store.close()


async def test_a_federation_must_be_created_first(store):
    with pytest.raises(NotFound, match="'f'"):
        await store.append("f", [Record(EVENTS[0])])


async def test_federations_do_not_mix(store):
    await store.create("f", "{}")
    await store.create("g", "{}")
    await store.append("f", [Record(EVENTS[0])])
    with pytest.raises(NotFound):
        await store.append("h", [Record(EVENTS[0])])


async def test_a_forgotten_federation_must_be_created_again(store):
    await store.create("f", "{}")
    await store.forget("f")
    await store.forget("f")
    with pytest.raises(NotFound, match="'f'"):
        await store.append("f", [Record(EVENTS[0])])
    await store.create("f", "{}")
    await store.append("f", [Record(EVENTS[0])])


async def test_memory_keeps_the_newest_events_in_order():
    store = MemoryStore(capacity=2)
    await store.create("f", "{}")
    await store.append("f", [Record(event) for event in EVENTS])
    assert store.events("f") == EVENTS[1:]
    assert store.events("f", last=1) == EVENTS[2:]


def test_memory_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="0"):
        MemoryStore(capacity=0)


async def test_lines_read_back_as_the_same_events(tmp_path):
    store = JsonLinesStore(tmp_path)
    await store.create("f", '{"name": "f"}')
    await store.append("f", [Record(event, b"body") for event in EVENTS])
    await store.close()
    first, *lines = [json.loads(line) for line in (tmp_path / "f.events.jsonl").read_text().splitlines()]
    assert first == {"kind": "federation_created", "definition": {"name": "f"}}
    assert tuple(from_record(line) for line in lines) == EVENTS


async def test_a_new_service_appends_to_what_was_written(tmp_path):
    for _ in range(2):
        store = JsonLinesStore(tmp_path)
        await store.create("f", "{}")
        await store.append("f", [Record(EVENTS[0])])
        await store.close()
    assert len((tmp_path / "f.events.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize("torn", ['{"kind": "client_reg', '{"kind": "' + "x" * 200_000])
@pytest.mark.parametrize("whole", ["", '{"kind": "stopped"}\n{"kind": "stopped"}\n'])
async def test_a_line_that_was_torn_when_the_machine_stopped_spoils_no_other(tmp_path, whole, torn):
    path = tmp_path / "f.events.jsonl"
    path.write_text(whole + torn)
    store = JsonLinesStore(tmp_path)
    await store.create("f", "{}")
    await store.close()
    assert path.read_text() == whole + '{"kind": "federation_created", "definition": {}}\n'


@pytest.mark.parametrize(
    "record", [{"kind": "nonsense"}, {}, {**to_record(EVENTS[0]), "more": 1}, {"kind": "stopped"}]
)
def test_a_record_that_is_no_event_is_refused(record):
    with pytest.raises(WireError):
        from_record(record)


async def test_a_full_disk_leaves_whole_lines_and_the_store_goes_on(tmp_path, monkeypatch):
    store = JsonLinesStore(tmp_path)
    await store.create("f", "{}")
    path = tmp_path / "f.events.jsonl"
    limit = path.stat().st_size + 40
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with pytest.raises(OSError, match="large") as failed:
            await store.append("f", [Record(event) for event in EVENTS])
        assert failed.value.filename == str(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    await store.append("f", [Record(EVENTS[0])])
    await store.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["federation_created", "client_registered"]
