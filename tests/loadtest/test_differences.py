"""What polyline saves by differences to what both sides hold, over a whole run."""

import pytest

from fedat_service.federation.events import VersionPublished
from fedat_service.store.jsonl import Created, read_log
from loadtest.experiments.settings import ExperimentSettings
from loadtest.experiments.simulation import simulate

HORIZON_S = 1200.0


async def watch(_client, finished):
    await finished.wait()


def run(out, reference, horizon_s):
    """Bytes of a FedAT run, up and down, and the digests of its versions."""
    settings = ExperimentSettings(
        out=out,
        methods=("fedat",),
        method={"fedat": {"codec": {"reference": reference}}},
        model="mlp",
        num_clients=20,
        num_tiers=3,
        cohort_size=4,
        horizon_s=horizon_s,
        evaluate_every_s=600.0,
    )
    metrics = simulate("fedat", settings, watch, "inline").metrics
    events = [entry.event for entry in read_log(out / "events.jsonl") if not isinstance(entry, Created)]
    digests = [event.digest for event in events if isinstance(event, VersionPublished)]
    return metrics.up.wire + metrics.down.wire, digests


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_the_second_half_of_a_run_differences_take_at_most_55_percent_of_the_values(tmp_path):
    second_half, digests = {}, {}
    for reference in ("base", "absolute"):
        # The same seed: a run half as long is the first half.
        half, _ = run(tmp_path, reference, HORIZON_S / 2)
        whole, digests[reference] = run(tmp_path, reference, HORIZON_S)
        second_half[reference] = whole - half
    assert len(digests["base"]) > 50
    assert digests["base"] == digests["absolute"]
    assert second_half["base"] <= 0.55 * second_half["absolute"]
