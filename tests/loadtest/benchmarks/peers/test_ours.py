import json
from collections import defaultdict
from pathlib import Path

import pytest

from fedat_service.federation.tasks import TaskId
from loadtest.benchmarks.peers.ours import settings_of, write_data
from loadtest.benchmarks.peers.workload import Network, Options, accuracy, load_examples, start_of
from loadtest.experiments.simulation import simulate


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


async def unseen(_, finished):
    await finished.wait()


@pytest.mark.usefixtures("fashion_mnist")
def test_the_others_have_the_examples_and_the_cohorts_that_ours_has(tmp_path):
    options = Options(tmp_path / "data.npz", "logistic", 1, 3, 5, evaluate=False, bfloat16=False)
    write_data(options)
    written = load_examples(options.data)
    assert written["x"].shape == (100, 120, 1, 28, 28)
    assert len(written["test_x"]) == len(written["test_y"]) == 10_000
    assert all(len(labels.unique()) == 2 for labels in written["y"])

    settings = settings_of(options, tmp_path)
    first = simulate("fedavg", settings, unseen, "inline").metrics.evaluations[0]
    model = Network("logistic")
    model.load_state_dict(start_of(written, "logistic"))
    assert (first.version, first.accuracy) == (0, pytest.approx(accuracy(model, written)))
    rounds = defaultdict(set)
    for line in settings.log_of("fedavg").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "update_accepted":
            task = TaskId.parse(event["task"])
            rounds[task.round].add(int(task.client.removeprefix("c")))
    assert rounds == {number: set(cohort) for number, cohort in enumerate(written["cohorts"].tolist(), 1)}
