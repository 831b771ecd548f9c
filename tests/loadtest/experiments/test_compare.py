import csv
import io
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from fedat_service.errors import ConfigError
from loadtest.experiments import Experiment, compare, simulate_all
from loadtest.experiments.demo import run_demo

CLIMB = [0.1, 0.3, 0.5, 0.7, 0.6, 0.8, 0.9]
SLOW = [0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.5, 0.7, 0.8]


class StandIn:
    """Runs nothing: `fedavg` is slow, `fedat` climbs, a seed adds to both. Breaks off at `broken`."""

    def __init__(self, make_run):
        self._make_run = make_run
        self.ran = []
        self.broken = None

    def __call__(self, name, settings, watch):
        if (name, settings.seed) == self.broken:
            raise KeyboardInterrupt
        settings.out.mkdir(parents=True, exist_ok=True)
        settings.log_of(name).write_text(f"{name}, {settings.seed}")
        self.ran.append((name, settings.seed))
        accuracies = [
            min(1.0, value + settings.seed / 100) for value in (SLOW if name == "fedavg" else CLIMB)
        ]
        return self._make_run(name, accuracies, num_tiers=1 if name == "fedavg" else 2)


@pytest.fixture
def simulate(make_run, undrawn):
    return StandIn(make_run)


@pytest.fixture
def experiment(tmp_path):
    return Experiment(name="one", target_accuracy=0.6, out=tmp_path / "single")


def test_every_method_runs_with_every_seed_and_the_spread_is_reported(experiment, simulate, tmp_path):
    done = compare([experiment], seeds=range(2), out=tmp_path / "out", simulate=simulate)
    assert simulate.ran == [("fedavg", 0), ("fedat", 0), ("fedavg", 1), ("fedat", 1)]
    assert done.report == tmp_path / "out" / "report.md"
    assert (
        "| best accuracy | 0.8050 (0.8000 to 0.8100) | 0.9050 (0.9000 to 0.9100) |" in done.report.read_text()
    )
    assert "| best accuracy | 0.8050 (0.8000 to 0.8100) | 0.9050 (0.9000 to 0.9100) |" in done.table()


def test_experiments_with_equal_methods_and_data_are_told_apart(experiment, simulate, tmp_path):
    others = [experiment, experiment.changed(name="two"), experiment.changed(name="three", title="Third")]
    done = compare(others, seeds=(0,), out=tmp_path / "out", simulate=simulate)
    headings = [f"{name}: fedavg and fedat on digits" for name in ("one", "two")] + ["three: Third"]
    assert [line for line in done.table().splitlines() if line and line[0] != "|"] == headings
    report = done.report.read_text()
    assert all(f"## {heading}\n" in report and f"| {heading} |" in report for heading in headings)


def test_what_was_interrupted_goes_on_where_it_stopped(experiment, simulate, tmp_path):
    simulate.broken = ("fedavg", 1)
    with pytest.raises(KeyboardInterrupt):
        compare([experiment], seeds=range(2), out=tmp_path / "out", simulate=simulate)
    simulate.ran.clear()
    simulate.broken = None
    done = compare([experiment], seeds=range(2), out=tmp_path / "out", simulate=simulate)
    assert simulate.ran == [("fedavg", 1), ("fedat", 1)]
    assert len(done.outcomes["one"].runs["fedavg"]) == 2


@pytest.mark.parametrize("run", [run_demo, simulate_all, lambda one, console: compare([one], out=one.out)])
def test_what_is_refused_leaves_no_folder_that_was_not_there(run, experiment, tmp_path):
    (tmp_path / "before").mkdir()
    refused = experiment.changed(device="cuda:9", out=tmp_path / "before" / "some" / "where")
    with pytest.raises(ConfigError, match="device 'cuda:9' is not there"):
        run(refused, console=Console(file=io.StringIO()))
    assert list(tmp_path.rglob("*")) == [tmp_path / "before"]


def test_fresh_runs_everything_again(experiment, simulate, tmp_path):
    for fresh in (False, True):
        compare([experiment], seeds=(5,), out=tmp_path / "out", simulate=simulate, fresh=fresh)
    assert len(simulate.ran) == 4


def test_fresh_throws_an_interrupted_run_away(experiment, simulate, tmp_path):
    begun = experiment.unfinished_of("fedat")
    begun.mkdir(parents=True)
    simulate_all(experiment, simulate=simulate)
    assert begun.exists()
    simulate_all(experiment, simulate=simulate, fresh=True)
    assert not begun.exists()


def test_other_conditions_are_run_and_other_words_are_not(experiment, simulate, tmp_path):
    compare([experiment], seeds=(0,), out=tmp_path, simulate=simulate)
    simulate.ran.clear()
    compare(
        [experiment.changed(title="New", target_accuracy=0.7)], seeds=(0,), out=tmp_path, simulate=simulate
    )
    assert simulate.ran == []
    for change in ({"lr": 0.5}, {"keep_updates": True}):
        simulate.ran.clear()
        compare([experiment.changed(**change)], seeds=(0,), out=tmp_path, simulate=simulate)
        assert len(simulate.ran) == 2


def image_folder(path, shade):
    """Ten grey images of each of two classes."""
    for number in range(20):
        file = path / "train" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), shade + number).save(file)
    return path


def zipped(path, shade):
    folder = image_folder(path / "unpacked", shade)
    return Path(shutil.make_archive(str(path / "set"), "zip", folder))


def trace(path, latency_s):
    path.mkdir(exist_ok=True)
    (path / "trace.csv").write_text("".join(f"{client},{latency_s}\n" for client in range(2)))
    return path / "trace.csv"


@pytest.fixture(params=[image_folder, zipped, trace])
def of_files(request, experiment, tmp_path):
    """An experiment on files of the user's, and what writes others in their place."""
    make = partial(request.param, tmp_path / "files")
    path = make(10)
    fields = {"data": path.name, "data_dir": path.parent}
    if request.param is trace:
        fields = {"latency": f"trace:{path}"}
    return experiment.changed(num_clients=2, num_unstable=0, partition="iid", **fields), make


def test_a_run_of_other_files_in_the_same_place_is_run_again(of_files, simulate):
    own, make = of_files
    for _ in range(2):
        simulate_all(own, simulate=simulate)
    assert simulate.ran == [("fedavg", 0), ("fedat", 0)]
    make(20)
    simulate_all(own, simulate=simulate)
    assert simulate.ran == 2 * [("fedavg", 0), ("fedat", 0)]


def test_a_run_whose_files_change_meanwhile_is_refused_and_not_kept(of_files, simulate):
    own, make = of_files

    def changing(*args):
        make(30)
        return simulate(*args)

    with pytest.raises(ConfigError, match="changed while the run went on"):
        simulate_all(own, simulate=changing)
    simulate_all(own, simulate=simulate)
    assert simulate.ran == [("fedavg", 0), ("fedavg", 0), ("fedat", 0)]


def logs_of(experiment):
    return {name: experiment.log_of(name).read_text() for name in experiment.methods}


def test_with_another_reference_every_log_is_that_of_its_method(experiment, simulate):
    for reference in ("fedat", "fedavg", "fedat"):
        changed = experiment.changed(reference=reference)
        simulate_all(changed, simulate=simulate)
        assert logs_of(changed) == {"fedavg": "fedavg, 0", "fedat": "fedat, 0"}


def test_a_run_whose_log_was_deleted_is_run_again(experiment, simulate):
    simulate_all(experiment, simulate=simulate)
    experiment.log_of("fedavg").unlink()
    simulate_all(experiment, simulate=simulate)
    assert simulate.ran == [("fedavg", 0), ("fedat", 0), ("fedavg", 0)]


@pytest.fixture
def bad(experiment):
    """An experiment whose second method fits no model."""
    mine = {"preset": "fedals", "schedule": {"head": ("nowhere",)}}
    return experiment.changed(name="bad", methods=("fedavg", "mine"), method={"mine": mine}, num_clients=9)


def test_a_method_that_cannot_be_run_is_refused_before_any_is(experiment, bad, simulate, tmp_path):
    complaint = "bad: method mine: .*'nowhere' matches no layer"
    with pytest.raises(ConfigError, match=complaint):
        simulate_all(bad, simulate=simulate)
    with pytest.raises(ConfigError, match=complaint):
        compare([experiment, bad], seeds=(0,), out=tmp_path / "out", simulate=simulate)
    assert simulate.ran == []


def test_a_comparison_has_one_row_for_every_evaluation(experiment, simulate, tmp_path):
    other = experiment.changed(name="two", methods=("fedat",))
    compare([experiment, other], seeds=(0, 3), out=tmp_path, simulate=simulate)
    with (tmp_path / "evaluations.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * (len(SLOW) + len(CLIMB)) + 2 * len(CLIMB)
    assert list(rows[0].values())[:5] == ["one", "fedavg", "0", "1", "100.0"]
    assert set(rows[0]) == {
        *("experiment", "method", "seed", "version", "at_s", "wire_bytes", "accuracy", "loss", "variance")
    }


def test_report_json_holds_every_seed_the_spread_and_the_verdicts(experiment, simulate, tmp_path):
    expect = {"quantity": "time_to_target_s", "method": "fedat", "at_most": 0.6, "of": ("fedavg",)}
    compare([experiment.changed(expect=(expect,))], seeds=(0, 1), out=tmp_path, simulate=simulate)
    (one,) = json.loads((tmp_path / "report.json").read_text())["experiments"].values()
    assert [seed["seed"] for seed in one["seeds"]] == [0, 1]
    assert one["seeds"][1]["methods"]["fedat"]["time_to_target_s"] == 400
    assert one["spread"]["fedavg"]["time_to_target_s"] == {
        "mean": 800,
        "min": 800,
        "max": 800,
        "seeds_with_a_value": 2,
    }
    assert (one["verdicts"][0]["shows"], one["verdicts"][0]["holds"]) == ([True, True], True)


def test_each_experiment_has_its_own_figures(experiment, make_run, tmp_path):
    two = [experiment, experiment.changed(name="two")]
    compare(two, seeds=(0, 1), out=tmp_path, simulate=StandIn(make_run))
    text = (tmp_path / "report.md").read_text()
    for name in ("one", "two"):
        assert (tmp_path / name / "accuracy-over-time.png").read_bytes().startswith(b"\x89PNG")
        assert f"]({name}/accuracy-over-time.png)" in text


def test_a_simulation_of_one_seed_has_the_report_files_of_the_demo(experiment, simulate):
    report = simulate_all(experiment.changed(seed=4), simulate=simulate)
    assert simulate.ran == [("fedavg", 4), ("fedat", 4)]
    assert {path.name for path in report.parent.iterdir()} >= {
        *("report.md", "report.json", "evaluations.csv", "accuracy-over-time.png", "accuracy-over-bytes.png"),
        *("tier-counts-fedat.png", "mixing-weights-fedat.png"),
    }
    assert json.loads((report.parent / "report.json").read_text())["seed"] == 4


def test_an_interrupted_simulation_goes_on_with_the_next_method(experiment, simulate):
    simulate.broken = ("fedat", 0)
    with pytest.raises(KeyboardInterrupt):
        simulate_all(experiment, simulate=simulate)
    simulate.broken = None
    simulate_all(experiment, simulate=simulate)
    assert simulate.ran == [("fedavg", 0), ("fedat", 0)]


@pytest.mark.parametrize(("names", "seeds"), [([], (0,)), (["a"], ()), (["a", "a"], (0,)), (["a"], (1, 1))])
def test_nothing_to_compare_or_the_same_twice_is_refused(names, seeds, simulate, tmp_path):
    with pytest.raises(ConfigError):
        compare([Experiment(name=name) for name in names], seeds=seeds, out=tmp_path, simulate=simulate)
