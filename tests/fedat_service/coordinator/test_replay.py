import json
import re

import httpx
import pytest
from typer.testing import CliRunner

from fedat_service.cli import build
from fedat_service.coordinator.replay import replay
from fedat_service.errors import LogDamaged
from fedat_service.http.app import create_app
from fedat_service.store.jsonl import JsonLinesStore, bodies_path


@pytest.fixture
def logged(service, tmp_path):
    """`await logged(keeps_bodies, **fields)`: the log of three versions from updates of 0.5, 0.25, 0.125."""

    async def run(keeps_bodies=True, **fields):
        store = JsonLinesStore(tmp_path, keeps_bodies=keeps_bodies)
        app = create_app(make_clock=lambda _: service.clock, store=store)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
                service.http, service.app = http, app
                await service.create(rounds={"cohort_size": 1, "start_clients": 1}, **fields)
                await upload_if_asked_for(service, **fields)
                await service.register("a")
                for version in range(3):
                    task = (await service.task("a", wait=30)).json()["task"]
                    body = service.update(service.some_model(2.0 ** -(version + 1)), base_version=version)
                    (await service.put(task, body)).raise_for_status()
                await service.task("a", wait=30)
        await store.close()
        return tmp_path / "f.events.jsonl"

    return run


async def upload_if_asked_for(service, initial_model="glorot", **_):
    if initial_model == "upload":
        body = service.update(version=0, base_version=None, num_examples=None)
        await service.http.put(
            "/v1/federations/f/model",
            content=body,
            headers={"Content-Type": "application/vnd.fedat.bundle"},
        )


FEDADAM = {"participation": {"name": "fedavg"}, "server": {"name": "fedadam"}, "codec": {"name": "float32"}}


@pytest.mark.parametrize("fields", [{}, {"initial_model": "upload"}, {"method": FEDADAM}])
async def test_every_version_comes_out_as_it_was_published(logged, fields):
    (played,) = replay(await logged(**fields), verify=True)
    assert (played.verified, played.differing) == ([1, 2, 3], [])
    assert played.state.update_counts == (3,)


async def test_another_body_comes_out_as_another_version(logged):
    log = await logged()
    bodies = bytearray(bodies_path(log).read_bytes())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    second = [line for line in lines if line["kind"] == "update_accepted"][1]
    end = second["body_at"] + second["body_bytes"]
    bodies[end - 1] ^= 1
    bodies_path(log).write_bytes(bodies)
    with pytest.raises(LogDamaged, match="crc32"):
        list(replay(log, verify=True))


async def test_a_digest_that_is_not_the_versions_is_found(logged):
    log = await logged()
    lines = log.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"version": 2, "digest"' in line)
    lines[at] = json.dumps({**json.loads(lines[at]), "digest": "0" * 32})
    log.write_text("\n".join(lines) + "\n")
    (played,) = replay(log, verify=True)
    assert (played.verified, played.differing) == ([1, 3], [2])
    outcome = CliRunner().invoke(build(), ["replay", str(log), "--verify"])
    assert "version 2 comes out differently" in str(outcome.exception)


FEDALS = {
    "participation": {"name": "fedavg"},
    "schedule": {"name": "fedals", "alpha": 2, "head": ["fc"]},
    "codec": {"name": "float32"},
}


@pytest.mark.parametrize("kind", ["update_accepted", "sync_closed"])
async def test_a_digest_that_is_not_what_was_sent_or_computed_is_named(service, tmp_path, kind):
    store = JsonLinesStore(tmp_path, keeps_bodies=True)
    app = create_app(make_clock=lambda _: service.clock, store=store)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http,
    ):
        service.http, service.app = http, app
        (task,) = await service.started("a", method=FEDALS)
        (await service.put(task, service.update(layers=("fc",)))).raise_for_status()
        task = (await service.task("a", wait=30)).json()["task"]
        (await service.put(task, service.update())).raise_for_status()
        await service.task("a", wait=30)
    await store.close()
    log = tmp_path / "f.events.jsonl"
    (played,) = replay(log, verify=True)
    assert played.verified == [1]
    lines = log.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if f'"kind": "{kind}"' in line)
    lines[at] = re.sub(r'("digest": ")(.)', lambda m: m[1] + ("0" if m[2] != "0" else "1"), lines[at])
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(LogDamaged, match=rf"line {at + 1}: .* has digest .*, the log says"):
        list(replay(log, verify=True))


async def test_a_log_that_was_taken_away_from_its_bodies_is_one_without(logged):
    log = await logged()
    bodies_path(log).unlink()
    (played,) = replay(log, verify=False)
    assert played.state.published == 3
    with pytest.raises(LogDamaged, match="--keep-updates"):
        list(replay(log, verify=True))


async def test_without_bodies_the_states_are_played_and_nothing_can_be_verified(logged):
    log = await logged(keeps_bodies=False)
    assert not bodies_path(log).exists()
    (played,) = replay(log, verify=False)
    assert played.state.version == 3
    with pytest.raises(LogDamaged, match="--keep-updates"):
        list(replay(log, verify=True))


async def test_a_service_started_anew_begins_a_new_federation_in_the_same_log(logged):
    await logged()
    assert [played.verified for played in replay(await logged(), verify=True)] == [[1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("{", "line 5"),
        ("7", "line 5"),
        ('{"kind": "nonsense"}', "line 5"),
        ('{"kind": "stopped", "at_s": 1.0, "reason": "x", "body_at": 99999999, "body_bytes": 3}', "line 5"),
        ('{"kind": "task_delivered", "at_s": 1.0, "task": "t1.r9.s0.nobody"}', "line 5"),
    ],
)
async def test_a_line_that_cannot_be_is_named(logged, line, where):
    log = await logged()
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:4], line, *lines[4:]]) + "\n")
    with pytest.raises(LogDamaged, match=where):
        list(replay(log, verify=True))


GARBAGE = (None, True, -1, 0, 1.5, float("inf"), 2**70, "x", "t1.r1.s0.a", [], [1, 1], {"a": 1})


def damaged(lines):
    """The first line of every kind: a field lost, other or one more; the line lost, twice, or cut short."""
    kinds = [json.loads(line)["kind"] for line in lines]
    for i, line in enumerate(lines):
        if kinds[i] in kinds[:i]:
            continue
        record = json.loads(line)
        others = [{k: v for k, v in record.items() if k != name} for name in record]
        others += [{**record, name: value} for name in (*record, "more") for value in GARBAGE]
        if (definition := record.get("definition")) is not None:
            changes = [{**definition, name: value} for name in (*definition, "more") for value in GARBAGE]
            others += [{**record, "definition": change} for change in changes]
        for other in others:
            yield [*lines[:i], json.dumps(other), *lines[i + 1 :]]
        yield [*lines[:i], *lines[i + 1 :]]
        yield [*lines[:i], line, line, *lines[i + 1 :]]
        yield [*lines[:i], line[:-5], *lines[i + 1 :]]


async def test_whatever_a_log_holds_it_is_played_or_its_line_is_named(logged):
    log = await logged()
    lines = log.read_text().splitlines()
    observed = {"kind": "version_evaluated", "at_s": 9.0, "version": 1, "num_clients": 1, "num_examples": 4}
    observed |= {"accuracy": 0.5, "loss": 1.0, "client_accuracy_variance": 0.0, "tier_accuracies": [0.5]}
    told = {"kind": "client_evaluated", "at_s": 9.0, "task": "t1.r3.s0.a", "num_examples": 4, "correct": 2}
    lines += [json.dumps(one) for one in (observed, {**told, "loss": 1.0})]
    lines += ['{"kind": "stopped", "at_s": 9.0, "reason": "x"}']
    complaints = []
    for changed in damaged(lines):
        log.write_text("\n".join(changed) + "\n")
        try:
            list(replay(log, verify=True))
        except LogDamaged as error:
            complaints.append(str(error))
    assert len(complaints) > 300
    assert [one for one in complaints if not re.match(r"[^\n]*, line \d+: [^\n]*$", one)] == []


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[" * 100_000, b"", b"9" * 5000, b"\x00"])
def test_a_line_that_is_no_json_is_named(tmp_path, line):
    log = tmp_path / "f.events.jsonl"
    log.write_bytes(line + b"\n")
    with pytest.raises(LogDamaged, match="line 1: "):
        list(replay(log, verify=False))


def test_a_log_that_holds_nothing_is_told(tmp_path):
    log = tmp_path / "f.events.jsonl"
    log.write_text("")
    with pytest.raises(LogDamaged, match="holds nothing"):
        list(replay(log, verify=False))


def test_a_log_must_begin_with_its_federation(tmp_path):
    log = tmp_path / "f.events.jsonl"
    log.write_text('{"kind": "stopped", "at_s": 1.0, "reason": "x"}\n')
    with pytest.raises(LogDamaged, match="line 1: a log begins with"):
        list(replay(log, verify=False))


async def test_the_command_says_what_was_verified(logged):
    outcome = CliRunner().invoke(build(), ["replay", str(await logged()), "--verify"])
    assert outcome.exit_code == 0
    assert "3 versions verified" in outcome.output
