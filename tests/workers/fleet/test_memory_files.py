import mmap
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.fleet import memory_files
from workers.fleet.memory_files import MEMORY, MemoryFiles, give_back, places
from workers.fleet.parcels import parcel_folder

SIZE = 100_000
DESCRIPTORS = Path("/proc/self/fd")
CAN_MAP = os.access(MEMORY, os.W_OK) and hasattr(mmap, "MAP_POPULATE")
mapping = pytest.mark.skipif(not CAN_MAP, reason="the system has no files in memory")


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
    sender, receiver = MemoryFiles(folder), MemoryFiles(folder)
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


def require_kept(kept):
    for arrays, parts in kept:
        assert [bytes(part) for part in parts] == [array.tobytes() for array in arrays]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.lists(sizes, min_size=1, max_size=3), st.integers(0, 3)), max_size=12))
def test_whatever_is_kept_keeps_its_values(steps):
    with parcel_folder() as folder:
        sender, receiver, kept = MemoryFiles(folder), MemoryFiles(folder), []
        for number, (lengths, dropped) in enumerate(steps):
            arrays = [numbers(length, number) for length in lengths]
            content = receiver.take(*stored(sender, *arrays))
            kept.append((arrays, [content[place] for place in places(lengths)]))
            del content, kept[:dropped]
            require_kept(kept)


@mapping
@pytest.mark.parametrize("size", [SIZE + 64, SIZE // 3])
def test_a_file_that_is_too_small_or_much_too_large_waits_for_others(folder, size):
    sender, receiver = MemoryFiles(folder), MemoryFiles(folder)
    handed = stored(sender, numbers(SIZE, 0))
    receiver.take(*handed).release()
    assert stored(sender, numbers(size, 1))[0] != handed[0]


def descriptors():
    return len(list(DESCRIPTORS.iterdir()))


@mapping
@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not tell its descriptors")
def test_however_many_are_handed_over_descriptors_do_not_run_out(folder):
    receiver, before = MemoryFiles(folder), descriptors()
    for _ in range(3):
        sender = MemoryFiles(folder)
        handed = [stored(sender, numbers(SIZE, seed)) for seed in range(100)]
        del sender
        kept = [receiver.take(*one) for one in handed]
        assert all(bytes(content) == numbers(SIZE, seed).tobytes() for seed, content in enumerate(kept))
        del kept
        assert descriptors() <= before + 64


@mapping
@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not tell its descriptors")
def test_however_many_are_stored_descriptors_do_not_run_out(folder):
    sender, before = MemoryFiles(folder), descriptors()
    for seed in range(100):
        stored(sender, numbers(SIZE, seed))
    assert descriptors() <= before + 64


@mapping
@pytest.mark.parametrize(("free", "comes_back"), [(0.49, False), (0.5, True)])
def test_where_half_of_the_memory_is_taken_nothing_more_is_kept(folder, monkeypatch, free, comes_back):
    sender, receiver = MemoryFiles(folder), MemoryFiles(folder)
    receiver.take(*stored(sender, numbers(SIZE, 0))).release()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1.0, free=free))
    handed = stored(sender, numbers(5 * SIZE, 1))
    assert handed[-1] is comes_back
    assert bytes(receiver.take(*handed)) == numbers(5 * SIZE, 1).tobytes()
    assert len([path for path in folder.iterdir() if path.name != "lock"]) == 2 * comes_back


@mapping
def test_who_cannot_map_a_file_reads_it(folder, monkeypatch):
    def refused(_):
        raise OSError(24, os.strerror(24))

    sender, receiver = MemoryFiles(folder), MemoryFiles(folder)
    handed = stored(sender, numbers(SIZE, 0))
    with monkeypatch.context() as full:
        full.setattr(memory_files, "_mapped", refused)
        assert bytes(receiver.take(*handed)) == numbers(SIZE, 0).tobytes()
        assert stored(sender, numbers(SIZE, 1))[0] == handed[0]
        assert not stored(sender, numbers(5 * SIZE, 2))[-1]


@mapping
def test_what_a_process_forks_off_gives_nothing_back(folder):
    path, _, _ = stored(MemoryFiles(folder), numbers(SIZE, 0))
    give_back(path, os.getpid() + 1)
    assert path.exists()
    give_back(path, os.getpid())
    assert not path.exists()


def test_on_a_disk_nothing_comes_back(tmp_path):
    sender, receiver = MemoryFiles(tmp_path), MemoryFiles(tmp_path)
    handed = stored(sender, numbers(SIZE, 0))
    assert not handed[-1]
    assert bytes(receiver.take(*handed))[:SIZE] == numbers(SIZE, 0).tobytes()
    assert not list(tmp_path.iterdir())


def test_without_room_nothing_is_left(folder, monkeypatch):
    def full(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(memory_files, "_padded", full)
    with pytest.raises(OSError, match="No space"):
        memory_files._write(folder / "1", [memoryview(b"1")])
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_file_of_somebody_else_is_left_alone(folder):
    (folder / "1").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        memory_files._write(folder / "1", [memoryview(b"1")])
    assert (folder / "1").read_bytes() == b"theirs"
