"""How a process that trains keeps its memory."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT_BYTES = 2**30


def keep_freed_memory() -> bool:
    """Make malloc keep up to 1 GiB of freed memory for the next step; call it once, when a process starts.

    A step frees all its activations and gradients. By default glibc gives those over some megabytes back to
    the system, and the next step waits for the same pages again, up to half of its time.

    Returns:
        Whether the process has glibc's malloc. If not, nothing is changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, _KEPT_BYTES) == 1 for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))
