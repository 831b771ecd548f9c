from pathlib import Path

import pytest

from loadtest.benchmarks.peers.ours import settings_of
from loadtest.benchmarks.peers.workload import Options


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("evaluate", [False, True])
def test_the_experiment_is_the_work_that_was_asked_for(bfloat16, evaluate):
    options = Options(Path("data.npz"), "mlp", 3, 20, 7, evaluate=evaluate, bfloat16=bfloat16)
    settings = settings_of(options, Path("out"))
    assert (settings.model, settings.epochs, settings.seed) == ("mlp", 3, 7)
    assert settings.bfloat16 is bfloat16
    # Twenty rounds fit; without evaluation there is none between the first and the last.
    assert 20 < settings.horizon_s / settings.compute_s < 21
    assert settings.evaluate_every_s == settings.compute_s * (1 if evaluate else 21)
