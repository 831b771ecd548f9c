import io
import json
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedat_service.errors import ConfigError, DataMissing, NotMeasured
from loadtest.benchmarks import run
from loadtest.benchmarks.run import measurement, merge, run_benchmarks, show

ONE = measurement(3.0, 2.0)
TWO = measurement(1.0, 4.0)


@pytest.fixture
def suites(monkeypatch):
    monkeypatch.setattr(run, "SUITES", ("codec", "upload"))
    results = {"codec": {"codec_encode": ONE, "codec_decode": TWO}, "upload": {"upload_add": TWO}}
    measured = []

    def fake(name):
        return SimpleNamespace(measure=lambda: measured.append(name) or results[name])

    for name in results:
        monkeypatch.setitem(sys.modules, f"loadtest.benchmarks.{name}", fake(name))
    return measured


def bench(only):
    return run_benchmarks(only, Console(file=io.StringIO()))


def test_a_ratio_is_value_over_baseline():
    assert ONE == {"value": 3.0, "baseline": 2.0, "ratio": 1.5}


def test_merge_puts_all_results_together():
    merged = merge({"upload": {"upload_add": TWO}, "codec": {"codec_encode": ONE}})
    assert list(merged) == ["codec_encode", "upload_add"]


def test_merge_refuses_a_name_used_twice():
    with pytest.raises(ConfigError, match="speed"):
        merge({"codec": {"speed": ONE}, "upload": {"speed": TWO}})


def test_all_suites_run_if_nothing_is_said(suites):
    assert set(bench("")) == {"codec_encode", "codec_decode", "upload_add"}


@pytest.mark.parametrize("only", ["codec", "co"])
def test_the_start_of_a_suites_name_wants_all_of_it(suites, only):
    assert set(bench(only)) == {"codec_encode", "codec_decode"}
    assert suites == ["codec"]


def test_a_longer_start_picks_results_within_the_suite(suites):
    assert set(bench("codec_enc")) == {"codec_encode"}


def test_an_unknown_start_is_refused_before_anything_is_measured(suites):
    with pytest.raises(ConfigError, match="nothing"):
        bench("nothing")
    assert not suites


def fails(monkeypatch, suite, error):
    def measure():
        raise error

    monkeypatch.setitem(sys.modules, f"loadtest.benchmarks.{suite}", SimpleNamespace(measure=measure))


def test_a_suite_that_fails_is_named_and_the_results_of_the_others_are_kept(suites, monkeypatch):
    fails(monkeypatch, "codec", DataMissing("no images"))
    with pytest.raises(NotMeasured, match="codec: no images") as told:
        bench("")
    assert told.value.results == {"upload_add": TWO}


def test_a_disk_that_fails_takes_no_other_results_along(suites, monkeypatch):
    fails(monkeypatch, "codec", OSError("no space left"))
    with pytest.raises(NotMeasured, match="codec: no space left") as told:
        bench("")
    assert told.value.results == {"upload_add": TWO}


def test_what_was_measured_before_an_interrupt_is_kept(suites, monkeypatch):
    fails(monkeypatch, "upload", KeyboardInterrupt())
    with pytest.raises(NotMeasured, match="upload: interrupted") as told:
        bench("")
    assert set(told.value.results) == {"codec_encode", "codec_decode"}


def test_what_a_suite_has_measured_before_it_failed_is_kept(suites, monkeypatch):
    fails(monkeypatch, "codec", NotMeasured("no decoder", {"codec_encode": ONE}))
    with pytest.raises(NotMeasured, match="no decoder") as told:
        bench("")
    assert set(told.value.results) == {"codec_encode", "upload_add"}


def test_results_are_shown_as_one_object(capsys):
    show(lambda: {"codec_encode": ONE})
    assert json.loads(capsys.readouterr().out) == {"codec_encode": ONE}


def test_results_are_shown_even_if_some_are_missing(capsys):
    def measure():
        raise NotMeasured("no decoder", {"codec_encode": ONE})

    with pytest.raises(NotMeasured, match="no decoder"):
        show(measure)
    assert json.loads(capsys.readouterr().out) == {"codec_encode": ONE}
