import pytest

from loadtest.experiments import kept
from loadtest.experiments.kept import find_run, keep_run

CONDITIONS = {"lr": 0.1, "method": {"solver": {"name": "adam"}}}


@pytest.fixture
def run(make_run):
    return make_run("fedat", [0.1, 1 / 3, 0.7], num_tiers=2)


def test_a_kept_run_comes_back_to_the_last_bit(tmp_path, run):
    keep_run(tmp_path / "runs" / "fedat.json", CONDITIONS, run)
    assert find_run(tmp_path / "runs" / "fedat.json", CONDITIONS) == run


def test_a_run_under_other_conditions_is_not_taken(tmp_path, run):
    keep_run(tmp_path / "fedat.json", CONDITIONS, run)
    assert find_run(tmp_path / "fedat.json", {**CONDITIONS, "lr": 0.2}) is None


def test_a_run_of_another_version_is_not_taken(tmp_path, run, monkeypatch):
    keep_run(tmp_path / "fedat.json", CONDITIONS, run)
    monkeypatch.setattr(kept, "version", lambda _: "99.0")
    assert find_run(tmp_path / "fedat.json", CONDITIONS) is None


@pytest.mark.parametrize("content", [None, b"", b"{}", b"not json"])
def test_without_a_readable_run_there_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / "fedat.json").write_bytes(content)
    assert find_run(tmp_path / "fedat.json", CONDITIONS) is None
