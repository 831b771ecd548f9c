from dataclasses import replace

import pytest

from fedat_service.wire.views import ByteCount
from loadtest.experiments import Experiment
from loadtest.experiments.communication import communication_table
from loadtest.experiments.outcome import Outcome


def count(direction, layer, slot, payload, tier=1):
    return ByteCount(
        direction=direction, tier=tier, layer=layer, slot=slot, parameters=payload // 4, payload=payload
    )


@pytest.fixture
def outcome_of(make_run):
    """`outcome_of(fedavg=[counts of each seed], ...)`: runs whose services counted that."""

    def make(**counts):
        seeds = tuple(range(len(next(iter(counts.values())))))
        runs = {
            name: tuple(
                replace(run, metrics=run.metrics.model_copy(update={"by_layer": tuple(by_layer)}))
                for run, by_layer in ((make_run(name, [0.5]), one) for one in by_seed)
            )
            for name, by_seed in counts.items()
        }
        return Outcome(Experiment(name="e", methods=tuple(counts)), seeds, runs, virtual=True)

    return make


def test_payload_is_summed_by_direction_and_slot_then_by_layer(outcome_of):
    fedavg = [count("up", "conv", "weights", 4_000_000), count("up", "fc", "weights", 1_000_000)]
    scaffold = [
        count("down", "conv", "weights", 2_000_000),
        count("up", "conv", "weights", 2_000_000),
        count("up", "conv", "control", 500_000, tier=2),
    ]
    assert communication_table(outcome_of(fedavg=[fedavg], scaffold=[scaffold])).splitlines() == [
        "| payload of training (MB) | fedavg | scaffold |",
        "|---|---|---|",
        "| up, weights | 5.000 | 2.000 |",
        "| down, weights | 0.000 | 2.000 |",
        "| up, control | 0.000 | 0.500 |",
        "| layer conv | 4.000 | 4.500 |",
        "| layer fc | 1.000 | 0.000 |",
    ]


def test_profiling_and_observers_are_left_out(outcome_of):
    table = communication_table(
        outcome_of(
            fedat=[[count("down", "fc", "weights", 9_000_000, tier=0), count("up", "fc", "weights", 8)]]
        )
    )
    assert "9.000" not in table


def test_seeds_are_averaged(outcome_of):
    seeds = [[count("up", "fc", "weights", size)] for size in (1_000_000, 3_000_000)]
    assert communication_table(outcome_of(fedat=seeds)).splitlines()[::2] == [
        "| payload of training (MB, means over the seeds) | fedat |",
        "| up, weights | 2.000 |",
    ]


def test_without_counts_there_is_no_table(outcome_of):
    assert communication_table(outcome_of(fedat=[[]])) == ""
