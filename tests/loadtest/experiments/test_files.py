import errno
from pathlib import Path

import pytest

from loadtest.experiments.files import write_atomically


def test_makes_the_folder_and_replaces_the_file(tmp_path):
    path = tmp_path / "new" / "report.json"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    target = tmp_path / "taken"
    target.mkdir()
    (target / "content").write_bytes(b"")
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
        write_atomically(target, b"data")
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_is_named_by_the_file_that_did_not_fit(tmp_path, monkeypatch):
    real_open = Path.open

    def fail(path, mode="r", **rest):
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_open(path, mode, **rest)

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match="No space left") as failed:
        write_atomically(tmp_path / "report.json", b"data")
    assert failed.value.filename == str(tmp_path / "report.json")


def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path):
    path = tmp_path / "result"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, b"new", "no bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
