from pathlib import Path

import pytest

from loadtest.experiments import kept
from loadtest.experiments.kept import find_run, keep_run

CONDITIONS = {"lr": 0.1, "method": {"solver": {"name": "adam"}}}


@pytest.fixture
def run(make_run):
    return make_run("fedat", [0.1, 1 / 3, 0.7], num_tiers=2)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "stopped"}\n')
    path.with_name("events.bodies").write_bytes(b"update")
    return path


def test_a_kept_run_comes_back_to_the_last_bit(tmp_path, run, log):
    keep_run(tmp_path / "runs" / "fedat.json", CONDITIONS, log, run)
    assert find_run(tmp_path / "runs" / "fedat.json", CONDITIONS, log) == run


def test_a_run_under_other_conditions_is_not_taken(tmp_path, run, log):
    keep_run(tmp_path / "fedat.json", CONDITIONS, log, run)
    assert find_run(tmp_path / "fedat.json", {**CONDITIONS, "lr": 0.2}, log) is None


def test_a_run_of_another_version_is_not_taken(tmp_path, run, log, monkeypatch):
    keep_run(tmp_path / "fedat.json", CONDITIONS, log, run)
    monkeypatch.setattr(kept, "version", lambda _: "99.0")
    assert find_run(tmp_path / "fedat.json", CONDITIONS, log) is None


@pytest.mark.parametrize("file", ["events.jsonl", "events.bodies"])
@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: path.write_bytes(b"of another")], ids=["gone", "other"]
)
def test_a_run_whose_log_is_gone_or_of_another_is_not_taken(tmp_path, run, log, file, change):
    keep_run(tmp_path / "fedat.json", CONDITIONS, log, run)
    change(tmp_path / file)
    assert find_run(tmp_path / "fedat.json", CONDITIONS, log) is None


@pytest.mark.parametrize("content", [None, b"", b"{}", b"not json"])
def test_without_a_readable_run_there_is_none(tmp_path, log, content):
    if content is not None:
        (tmp_path / "fedat.json").write_bytes(content)
    assert find_run(tmp_path / "fedat.json", CONDITIONS, log) is None
