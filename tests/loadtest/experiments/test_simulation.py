import pytest

from fedat_service.coordinator.replay import replay
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.simulation import simulate

SMALL = ExperimentSettings(
    methods=("fedat",),
    limit_per_class=20,
    model="logistic",
    num_clients=9,
    num_tiers=3,
    cohort_size=2,
    num_unstable=2,
    horizon_s=200.0,
    evaluate_every_s=20.0,
)


async def unseen(_, finished):
    await finished.wait()


@pytest.fixture
def log_of(tmp_path):
    """`log_of(engine, **fields)` is the event log of a small simulation, as bytes."""

    def run(engine, **fields):
        out = tmp_path / f"{engine}-{len(list(tmp_path.iterdir()))}"
        simulate("fedat", SMALL.changed(out=out, **fields), unseen, engine)
        return (out / "events.jsonl").read_bytes()

    return run


def test_a_simulation_is_over_when_its_time_is(tmp_path):
    run = simulate("fedat", SMALL.changed(out=tmp_path), unseen, "inline")
    assert run.federation.status == "finished"
    assert run.federation.now_s == pytest.approx(200.0, abs=0.001)
    assert run.metrics.versions[-1].at_s <= 200.0
    assert run.metrics.evaluations[-1].version == run.federation.version


def test_one_seed_gives_one_log_whatever_trains_and_another_seed_another(log_of):
    inline = log_of("inline")
    assert log_of("inline") == inline
    assert log_of("processes", processes=2) == inline
    assert log_of("inline", seed=1) != inline


@pytest.mark.timeout(300)
def test_ray_gives_the_same_log(log_of):
    pytest.importorskip("ray")
    assert log_of("ray") == log_of("inline")


def test_what_was_simulated_can_be_verified_from_its_log(tmp_path):
    run = simulate("fedat", SMALL.changed(out=tmp_path, keep_updates=True), unseen, "inline")
    (played,) = replay(tmp_path / "events.jsonl", verify=True)
    assert played.verified == list(range(1, run.federation.version + 1))
    assert not played.differing
