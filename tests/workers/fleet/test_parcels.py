import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from workers.fleet.parcels import discard, pack, parcel_folder, unpack
from workers.training.trainer import TrainResult

LARGE = 20_000


@pytest.fixture
def in_memory():
    """A folder in memory where the system has such a place."""
    with parcel_folder() as folder:
        yield folder


@pytest.fixture(params=["memory", "disk"])
def folder(request, tmp_path):
    return request.getfixturevalue("in_memory") if request.param == "memory" else tmp_path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    params=st.dictionaries(
        st.text(max_size=5),
        st.one_of(
            arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0))
            for dtype in (np.uint8, np.float32, np.float64, np.int64)
        ),
        max_size=5,
    ),
    large=st.integers(0, 1),
)
def test_whatever_is_packed_comes_out(folder, params, large):
    params |= {"large": np.arange(large * LARGE, dtype=np.float32)}
    back = unpack(pack([TrainResult(params, 3, {"train_loss": 0.5}), "end"], folder))
    result, end = back
    assert (result.num_examples, result.metrics, end) == (3, {"train_loss": 0.5}, "end")
    for name, array in params.items():
        other = result.params[name]
        assert (other.dtype, other.shape, other.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert other.flags.writeable
        assert other.flags.aligned
    del back, result, other
    assert {path.suffix for path in folder.iterdir() if path.name != "lock"} <= {".free"}


def test_large_arrays_go_into_a_file_each_once(tmp_path):
    start = np.ones(LARGE)
    parcel = pack([start, start], tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == start.nbytes
    assert len(parcel.value) < 1000
    one, other = unpack(parcel)
    one[0] = 2
    assert other[0] == 2


def test_many_small_arrays_are_large_together(tmp_path):
    small = [np.full(1000, one) for one in range(20)]
    parcel = pack(small, tmp_path)
    assert parcel.path is not None
    assert [array[0] for array in unpack(parcel)] == list(range(20))


def test_processes_that_share_a_folder_do_not_share_files(tmp_path):
    assert pack(np.ones(LARGE), tmp_path).path.name.startswith(f"{os.getpid()}-")


def test_what_is_discarded_is_gone(tmp_path):
    discard(pack(np.ones(LARGE), tmp_path))
    discard(pack(np.ones(10), tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_is_in_memory_if_there_is_such_a_place_and_goes_with_its_owner(tmp_path):
    with parcel_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        (folder / "1-0").touch()
    assert not list(tmp_path.iterdir())
    with parcel_folder(tmp_path / "missing") as folder:
        assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()


def test_what_belongs_to_somebody_else_is_not_taken_away(tmp_path, monkeypatch):
    left = tmp_path / "fedat-parcels-1"
    left.mkdir()
    (left / "lock").touch()
    os.utime(left, (0, 0))
    stranger = os.getuid() + 1
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: stranger)
        with parcel_folder(tmp_path):
            assert left.exists()
    with parcel_folder(tmp_path):
        assert not left.exists()


def test_what_killed_processes_left_is_taken_away_and_what_is_in_use_is_not(tmp_path):
    left, bare, young, strange = (
        tmp_path / name for name in ("fedat-parcels-1", "fedat-parcels-2", "fedat-parcels-3", "fedat-other")
    )
    for folder in (left, bare, young, strange):
        folder.mkdir()
        (folder / "1-0").touch()
    for folder in (left, young, strange):
        (folder / "lock").touch()
    with parcel_folder(tmp_path) as used:
        an_hour_ago = used.stat().st_mtime - 3600
        for folder in (left, bare, strange, used):
            os.utime(folder, (an_hour_ago, an_hour_ago))
        with parcel_folder(tmp_path) as mine:
            assert set(tmp_path.iterdir()) == {bare, young, strange, used, mine}


def test_small_ones_need_none(tmp_path):
    assert pack(np.ones(10), tmp_path).path is None
    assert not list(tmp_path.iterdir())


def test_arrays_that_do_not_lie_in_one_piece_go_beside_it(tmp_path):
    across = np.arange(2.0 * LARGE).reshape(2, LARGE)[:, ::2]
    assert unpack(pack(across, tmp_path)).tobytes() == across.tobytes()


def full(path, contents):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_where_there_is_no_room_all_goes_by_the_pipe(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.fleet.memory_files._write", full)
    parcel = pack(np.ones(LARGE), tmp_path)
    assert not list(tmp_path.iterdir())
    assert unpack(parcel).tolist() == [1] * LARGE


def test_a_folder_that_is_gone_is_no_room(tmp_path):
    assert unpack(pack(np.ones(LARGE), tmp_path / "gone")).tolist() == [1] * LARGE


def test_a_file_that_was_cut_is_refused(folder):
    parcel = pack(np.ones(LARGE), folder)
    os.truncate(parcel.path, 1000)
    with pytest.raises(OSError, match="1000 bytes"):
        unpack(parcel)


def test_the_next_parcel_takes_the_file_of_one_that_is_done_with(in_memory):
    first = pack(np.zeros(LARGE), in_memory)
    kept = unpack(first)
    assert pack(np.ones(LARGE), in_memory).path != first.path
    assert not kept.any()
    del kept
    third = pack(np.full(LARGE, 3), in_memory)
    assert (third.path == first.path) == first.comes_back
    assert unpack(third).tolist() == [3] * LARGE


def test_what_is_discarded_can_be_used_again(in_memory):
    first = pack(np.zeros(LARGE), in_memory)
    discard(first)
    assert (pack(np.ones(LARGE), in_memory).path == first.path) == first.comes_back
