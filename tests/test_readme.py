"""The script of the README that runs a comparison does so, as it stands there."""

import re
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from loadtest.experiments.simulation import simulate

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def comparison():
    """The script that compares methods from Python."""
    scripts = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (script,) = [one for one in scripts if "compare(" in one]
    return script


def test_the_comparison_from_python_runs_and_is_short(comparison, tmp_path, monkeypatch, capsys):
    assert comparison.count("\n") < 30
    # In this process and shorter: starting a pool takes longer than all the work.
    inline = partial(simulate, engine="inline")
    monkeypatch.setattr(import_module("loadtest.experiments.compare"), "_in_processes", lambda: inline)
    monkeypatch.chdir(tmp_path)
    script = comparison.replace("horizon_s=900", "horizon_s=60").replace("range(2)", "range(1)")
    exec(compile(script, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own text
    printed = capsys.readouterr().out
    for words in ("| | fedavg | tifl | fedat |", "calm: tifl took", "rough: fedavg took", "runs/latencies"):
        assert words in printed
    assert "ran 60 simulated seconds" in (tmp_path / "runs" / "latencies" / "report.md").read_text()
