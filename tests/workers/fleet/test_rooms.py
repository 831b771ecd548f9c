import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.fleet import rooms
from workers.fleet.parcels import parcel_folder
from workers.fleet.rooms import MEMORY, Rooms, places

SIZE = 100_000
DESCRIPTORS = Path("/proc/self/fd")
mapping = pytest.mark.skipif(not MEMORY.exists(), reason="the system has no files in memory")


@pytest.fixture
def folder():
    """In memory where the system has such a place."""
    with parcel_folder() as folder:
        yield folder


def stored(sender, *arrays):
    contents = [memoryview(array).cast("B") for array in arrays]
    path, comes_back = sender.store(contents)
    return path, places(map(len, contents))[-1].stop, comes_back


def numbers(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@mapping
def test_a_file_comes_back_when_nobody_has_an_array_of_it_any_more(folder):
    sender, receiver = Rooms(folder), Rooms(folder)
    handed = stored(sender, numbers(SIZE, 0))
    part = np.frombuffer(receiver.take(*handed)[10:20], np.uint8).reshape(2, 5)
    other = stored(sender, numbers(SIZE, 1))
    assert other[0] != handed[0]
    assert part.tolist() == numbers(SIZE, 0)[10:20].reshape(2, 5).tolist()
    del part
    again = stored(sender, numbers(SIZE, 2))
    assert again[0] == handed[0]
    assert bytes(receiver.take(*again)) == numbers(SIZE, 2).tobytes()


sizes = st.sampled_from([1000, SIZE, SIZE + 64, 3 * SIZE])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.lists(sizes, min_size=1, max_size=3), st.integers(0, 3)), max_size=12))
def test_whatever_is_kept_keeps_its_values(folder, steps):
    sender, receiver, kept = Rooms(folder), Rooms(folder), []
    for number, (lengths, dropped) in enumerate(steps):
        arrays = [numbers(length, number) for length in lengths]
        content = receiver.take(*stored(sender, *arrays))
        kept.append((arrays, [content[place] for place in places(lengths)]))
        del content, kept[:dropped]
        for given_, found in kept:
            assert [bytes(part) for part in found] == [array.tobytes() for array in given_]


@mapping
@pytest.mark.parametrize("size", [SIZE + 64, SIZE // 3])
def test_a_file_that_is_too_small_or_much_too_large_waits_for_others(folder, size):
    sender, receiver = Rooms(folder), Rooms(folder)
    handed = stored(sender, numbers(SIZE, 0))
    receiver.take(*handed).release()
    assert stored(sender, numbers(size, 1))[0] != handed[0]


@mapping
@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not tell its descriptors")
def test_however_many_are_kept_descriptors_do_not_run_out(folder):
    sender, receiver = Rooms(folder), Rooms(folder)
    before = len(list(DESCRIPTORS.iterdir()))
    kept = [receiver.take(*stored(sender, numbers(SIZE, seed))) for seed in range(200)]
    assert len(list(DESCRIPTORS.iterdir())) <= before + 2 * 64
    assert all(bytes(content) == numbers(SIZE, seed).tobytes() for seed, content in enumerate(kept))


@mapping
def test_what_is_kept_leaves_room_in_memory_for_others(folder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=10 * SIZE))
    sender, receiver = Rooms(folder), Rooms(folder)
    kept = [receiver.take(*stored(sender, numbers(SIZE, seed))) for seed in range(5)]
    assert len([path for path in folder.iterdir() if path.name != "lock"]) == 2
    assert all(bytes(content) == numbers(SIZE, seed).tobytes() for seed, content in enumerate(kept))


def test_on_a_disk_nothing_comes_back(tmp_path):
    sender, receiver = Rooms(tmp_path), Rooms(tmp_path)
    handed = stored(sender, numbers(SIZE, 0))
    assert not handed[-1]
    assert bytes(receiver.take(*handed))[:SIZE] == numbers(SIZE, 0).tobytes()
    assert not list(tmp_path.iterdir())


def test_without_room_nothing_is_left(folder, monkeypatch):
    def torn(path, _):
        path.touch()
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(rooms, "_write", torn)
    with pytest.raises(OSError, match="No space"):
        stored(Rooms(folder), numbers(SIZE, 0))
    assert [path.name for path in folder.iterdir()] == ["lock"]
