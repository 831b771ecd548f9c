import json
import sys
from pathlib import Path

import pytest
import typer

from fedat_service.errors import NotMeasured
from loadtest.benchmarks.peers import run
from loadtest.benchmarks.peers.run import contestants_here, main, options_of, run_all, run_once
from loadtest.benchmarks.peers.workload import MODELS, Options

REPORT = json.dumps({"versions": {"torch": "2"}, "round_s": 0.25, "accuracy": 0.5})
REPORTS = ("-c", f"print('talk'); print('{REPORT}'); print('more talk')")
FAILS = ("-c", "raise SystemExit('out of luck')")
FAILS_ONCE = """
from pathlib import Path
mark = Path({mark!r})
if not mark.exists():
    mark.touch()
    raise SystemExit("not yet")
print('{report}')
"""
OPTIONS = Options(Path("data.npz"), "mlp", 3, 20, 7, evaluate=False, bfloat16=False)
WORKS = [("mlp_e3", "round"), ("logistic_e3", "round")]


@pytest.fixture
def contestants(monkeypatch):
    """Who takes part, by what Python is to do; nobody needs data."""
    monkeypatch.setattr(run, "write_data", lambda options: options.data.touch())
    commands = {"ours": REPORTS, "loop": REPORTS}
    monkeypatch.setattr(run, "_COMMANDS", commands)
    return commands


def compete(contestants, folder, num_seeds=1):
    return run_all(folder, tuple(contestants), WORKS, rounds=2, num_seeds=num_seeds)


def test_a_report_is_found_among_other_lines():
    found = run_once("ours", [sys.executable, *REPORTS], OPTIONS)
    assert (found.workload, found.kind, found.seed) == ("mlp_e3", "round", 7)
    assert (found.seconds, found.accuracy, found.versions) == (0.25, 0.5, {"torch": "2"})


@pytest.mark.parametrize(
    ("flags", "has_it"), [("avx2 fma", False), ("avx512f avx512_bf16 amx_bf16", True), (None, False)]
)
def test_bfloat16_takes_part_where_the_processor_has_it(flags, has_it, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    own = ("ours", "ours-bfloat16") if has_it else ("ours",)
    assert contestants_here(cpuinfo) == (*own, "loop", "pfl", "flower")


def test_a_job_counts_from_its_start_to_its_end():
    code = f"import time; time.sleep(0.5); print('{REPORT}')"
    found = run_once("ours", [sys.executable, "-c", code], options_of("mlp_e3", "job", Path("d"), 20, 7))
    assert found.kind == "job"
    assert found.seconds > 0.5


def test_a_process_that_reports_nothing_has_failed():
    with pytest.raises(NotMeasured, match="report"):
        run_once("ours", [sys.executable, "-c", "print('talk')"], OPTIONS)


def test_everybody_is_held_against_ours(contestants, tmp_path):
    found = compete(contestants, tmp_path)
    assert {name for name in found if "_s_" in name} == {
        f"peers_{workload}_round_s_ours_vs_loop" for workload, _ in WORKS
    }


def test_who_has_no_room_for_an_environment_takes_no_other_results_along(contestants, monkeypatch, tmp_path):
    contestants["pfl"] = REPORTS
    monkeypatch.setattr(run, "REQUIREMENTS", {"pfl": tmp_path / "pfl.txt"})
    (tmp_path / "pfl.txt").touch()
    (tmp_path / "file").touch()
    with pytest.raises(NotMeasured, match="pfl failed 1 times") as told:
        compete(contestants, tmp_path / "file")
    assert len(told.value.results) == 4


def test_who_fails_once_loses_nothing(contestants, tmp_path):
    contestants["loop"] = ("-c", FAILS_ONCE.format(mark=str(tmp_path / "mark"), report=REPORT))
    assert len(compete(contestants, tmp_path)) == 4


def test_who_fails_twice_is_named_and_the_results_of_the_others_are_kept(contestants, tmp_path):
    contestants["pfl-like"] = FAILS
    with pytest.raises(NotMeasured, match="pfl-like failed 2 times, at last with: out of luck") as told:
        compete(contestants, tmp_path)
    assert len(told.value.results) == 4
    assert all(name.endswith("_vs_loop") for name in told.value.results)


def test_who_has_no_environment_is_named_and_the_others_run(contestants, tmp_path, monkeypatch):
    def python_of(environment, _):
        raise NotMeasured(f"nothing made {environment.name}")

    monkeypatch.setattr(run, "python_of", python_of)
    contestants["flower"] = REPORTS
    with pytest.raises(NotMeasured, match="flower failed 1 times, at last with: nothing made flower") as told:
        compete(contestants, tmp_path)
    assert len(told.value.results) == 4


def test_results_of_the_command_are_shown_before_it_fails(contestants, tmp_path, capsys):
    contestants["pfl-like"] = FAILS
    with pytest.raises(NotMeasured):
        main(tmp_path, ",".join(contestants), "mlp_e3", "round", rounds=2, repeats=1)
    assert "peers_mlp_e3_round_s_ours_vs_loop" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "named"),
    [({"contestants": "ours,tff"}, "tff"), ({"kinds": "day"}, "day"), ({"workloads": "vit"}, "vit")],
)
def test_what_cannot_be_compared_is_refused(tmp_path, words, named):
    known = {"contestants": "ours", "workloads": "mlp_e3", "kinds": "round"}
    with pytest.raises(typer.BadParameter, match=named):
        main(tmp_path, **known | words, rounds=2, repeats=1)


@pytest.mark.parametrize("model", MODELS)
def test_a_workload_is_named_as_it_is_asked_for(model):
    assert options_of(f"{model}_e3", "round", Path("d"), 20, 0).workload == f"{model}_e3"


def test_whole_jobs_are_measured_where_evaluation_weighs_most(monkeypatch):
    asked = []
    monkeypatch.setattr(run, "run_all", lambda *arguments: asked.append(arguments))
    run.measure()
    ((_, _, works, rounds, num_seeds),) = asked
    assert {work for work, kind in works if kind == "job"} == {"cnn_e1"}
    assert {work for work, kind in works if kind == "round"} == {"cnn_e1", "cnn_e3", "mlp_e3", "logistic_e3"}
    assert (rounds, num_seeds) == (20, 3)
