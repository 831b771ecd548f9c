import asyncio
import gc
import io
import json
import os
import signal
import subprocess
import sys

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fedat_service.errors import ConfigError, FleetFailed
from fedat_service.federation.events import TaskDelivered, UpdateAccepted, to_record
from loadtest import cli
from workers.fleet.pools import require_engine


@pytest.fixture
def app():
    app = typer.Typer()
    cli.register(app)
    return app


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("demo", "--target-accuracy"),
        ("simulate", "--horizon"),
        ("compare", "--seeds"),
        ("bench", "--only"),
    ],
)
def test_help_works(app, command, option):
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert option in result.output


def test_help_lists_the_experiments_of_the_package(app):
    result = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"})
    assert "fashion-mnist-2class" in result.output


def test_help_needs_neither_torch_nor_matplotlib():
    code = "import sys, loadtest.cli; print({'torch', 'matplotlib', 'httpx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_settings_that_make_no_sense_are_refused(app):
    result = CliRunner().invoke(app, ["demo", "--rate", "-1"])
    assert isinstance(result.exception, ConfigError)


@pytest.mark.parametrize("words", [["demo"], ["simulate", "sentiment"], ["compare", "sentiment"]])
@pytest.mark.parametrize(
    ("out", "complaint"), [("file", "is not a folder"), ("file/in", "no file can be written to")]
)
def test_a_folder_that_results_cannot_be_written_to_is_named_at_once(app, tmp_path, words, out, complaint):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / out)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("out: ")
    assert complaint in str(result.exception)


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_an_engine_that_is_not_installed_is_refused_before_anything_begins(
    app, small, tmp_path, monkeypatch, command
):
    monkeypatch.setattr("workers.fleet.pools.find_spec", lambda _: None)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, [command, str(small), "--engine", "ray", "--out", str(out)])
    assert isinstance(result.exception, ConfigError)
    assert "fedat-service[ray]" in str(result.exception)
    assert not out.exists()
    require_engine("processes")


def test_a_figure_cannot_be_a_folder(app, tmp_path):
    log = tmp_path / "f.events.jsonl"
    log.write_text("")
    result = CliRunner().invoke(app, ["what-if", str(log), "--out", str(tmp_path)])
    assert (result.exit_code, "--out" in result.output) == (2, True)


def test_an_unknown_experiment_is_refused(app):
    result = CliRunner().invoke(app, ["compare", "fedat-on-mars"])
    assert isinstance(result.exception, ConfigError)


SMALL = """
methods = ["fedat"]
model = "logistic"
limit_per_class = 20
num_clients = 9
num_tiers = 3
cohort_size = 2
num_unstable = 2
evaluate_every_s = 20.0
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.mark.usefixtures("undrawn")
def test_a_simulation_leaves_its_log_and_report_and_the_same_seed_the_same_log(app, small, tmp_path):
    for out, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = ["--engine", "inline", "--horizon", "100", "--seed", seed, "--out", str(tmp_path / out)]
        result = CliRunner().invoke(app, ["simulate", str(small), *arguments], catch_exceptions=False)
        assert result.exit_code == 0
        assert f"Report: {tmp_path / out / 'report.md'}" in result.output.replace("\n", "")
    first, again, other = [(tmp_path / out / "events.jsonl").read_bytes() for out in "abc"]
    assert first == again
    assert first != other


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_of_files_leaves_one_report(app, small, tmp_path):
    out = tmp_path / "out"
    arguments = ["--seeds", "2", "--engine", "inline", "--horizon", "60", "--out", str(out)]
    result = CliRunner().invoke(app, ["compare", str(small), *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    assert "# small: seeds 0, 1" in (out / "report.md").read_text()
    assert (out / "runs" / "small" / "seed-1" / "events.jsonl").stat().st_size


def end_with(error):
    with cli._resumable(Console(file=io.StringIO())):
        raise error


def test_an_interrupt_has_the_status_of_one():
    with pytest.raises(typer.Exit) as left:
        end_with(KeyboardInterrupt())
    assert left.value.exit_code == 130


def test_a_process_of_training_that_dies_is_no_reason_to_begin_anew():
    with pytest.raises(FleetFailed, match="out of memory; the same command goes on from there"):
        end_with(FleetFailed("out of memory"))


def terminate_oneself():
    with cli.terminable():
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_termination_unwinds():
    with pytest.raises(SystemExit) as left:
        terminate_oneself()
    assert left.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_termination_unwinds_in_the_background_of_a_script_too():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as left:
            terminate_oneself()
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.code == 143


def test_an_interrupt_of_what_could_be_terminated_stays_one():
    with pytest.raises(KeyboardInterrupt), cli.terminable():
        raise KeyboardInterrupt


def test_a_termination_is_no_error_of_the_task_that_it_meets(caplog):
    async def meet():
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def wait_for_it():
        async with asyncio.TaskGroup() as group:
            group.create_task(meet())

    def status():
        try:
            with cli.terminable():
                asyncio.run(wait_for_it())
        except SystemExit as left:
            return left.code

    assert status() == 143
    gc.collect()  # a task says so when it is gone
    assert not caplog.records


def test_a_termination_ends_what_a_benchmark_started(app, monkeypatch):
    """It unwinds: processes that `subprocess.run` waits for are ended on the way."""
    # Not reached, but where nobody unwinds: then the test fails, in place of the process that tests.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    monkeypatch.setattr(
        "loadtest.benchmarks.run.run_benchmarks", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or {}
    )
    try:
        assert CliRunner().invoke(app, ["bench"]).exit_code == 143
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_if_predicts_from_a_log(app, tmp_path):
    events = [
        TaskDelivered(0.0, "t0.r1.s0.a"),
        TaskDelivered(0.0, "t0.r1.s0.b"),
        UpdateAccepted(1.0, "t0.r1.s0.a", 10, "x"),
        UpdateAccepted(3.0, "t0.r1.s0.b", 10, "y"),
    ]
    log, figure = tmp_path / "f.events.jsonl", tmp_path / "f.png"
    log.write_text("".join(json.dumps(to_record(event)) + "\n" for event in events))
    outcome = CliRunner().invoke(
        app, ["what-if", str(log), "--tiers", "2", "--cohort", "1", "--out", str(figure)]
    )
    assert outcome.exit_code == 0
    assert "| 2 | 1.0, 3.0 | 0.75 | unknown |" in outcome.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")
