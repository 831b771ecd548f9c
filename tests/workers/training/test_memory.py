import subprocess
import sys

import pytest

SCRIPT = """
import resource
import numpy as np
from workers.training.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(2**20) for _ in range(4)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
assert keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_used_again_without_asking_the_system():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after < before / 10
