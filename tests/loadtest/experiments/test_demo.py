import io
import json
import subprocess

import pytest
from rich.console import Console

from fedat_service.errors import FedATError, FleetFailed
from loadtest.experiments import Experiment
from loadtest.experiments.demo import run_demo

FAILS_IN_A_FLEET = """
import sys
from fedat_service.errors import ConfigError
from workers.models.networks import Logistic

def build(input_shape, num_classes):
    if "fleet" in sys.argv[0]:
        raise ConfigError("not in a fleet")
    return Logistic(input_shape, num_classes)
"""


def tiny(out, **changes):
    return Experiment(
        name="demo",
        num_clients=6,
        num_tiers=2,
        cohort_size=2,
        num_unstable=1,
        compute_s=8.0,
        latency="uniform:0:4",
        horizon_s=60.0,
        rate=20.0,
        evaluate_every_s=4.0,
        limit_per_class=30,
        processes=1,
        out=out,
        **changes,
    )


def children_of(out):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(out) in line]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"partition": "shards:5000"}, "shards"),
        ({"latency": "slow"}, "slow"),
        ({"model": "gpt"}, "gpt"),
        ({"data": "nothing"}, "nothing"),
        ({"num_clients": 1, "num_unstable": 0, "processes": 2}, "num_processes: must lie in 1..1, got 2"),
        ({"method": {"fedat": {"schedule": {"name": "fedals", "head": ["nowhere"]}}}}, "nowhere"),
    ],
)
def test_what_makes_no_sense_shows_before_anything_starts(tmp_path, changes, complaint):
    output = io.StringIO()
    experiment = tiny(tmp_path / "demo").changed(**changes)
    with pytest.raises(FedATError, match=complaint):
        run_demo(experiment, Console(file=output))
    assert output.getvalue() == ""
    assert not (tmp_path / "demo").exists()


@pytest.mark.e2e
@pytest.mark.slow
def test_a_small_demo_runs_and_leaves_a_report_and_no_process(tmp_path):
    output = io.StringIO()
    settings = tiny(tmp_path / "demo")
    path = run_demo(settings, Console(file=output, width=200))
    report = json.loads((settings.out / "report.json").read_text())
    assert path.read_text().startswith("# fedavg and fedat on digits")
    assert set(report["methods"]) == {"fedavg", "fedat"}
    for method in report["methods"].values():
        assert method["versions"] >= 2
        assert method["evaluations"] >= 2
        assert method["bytes_up"]["wire"] > method["bytes_up"]["payload"] > 0
    kinds = {json.loads(line)["kind"] for line in (settings.out / "events.jsonl").read_text().splitlines()}
    assert {"federation_created", "task_delivered", "update_accepted", "version_published"} <= kinds
    assert (settings.out / "events-fedavg.jsonl").stat().st_size
    assert "fedat: starts" in output.getvalue()
    assert not children_of(settings.out)


@pytest.mark.e2e
@pytest.mark.slow
def test_a_fleet_that_fails_is_reported_and_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "only_here.py").write_text(FAILS_IN_A_FLEET)
    settings = tiny(tmp_path / "demo", model="only_here:build", methods=("fedavg",))
    with pytest.raises(FleetFailed, match="not in a fleet"):
        run_demo(settings, Console(file=io.StringIO()))
    assert not children_of(settings.out)
    assert [path.name for path in settings.out.iterdir()] == ["logs"]
