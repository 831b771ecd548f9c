import json

import pytest

from loadtest.experiments.report import make_report, to_json, write_report
from loadtest.experiments.settings import ExperimentSettings

CLIMB = [0.1, 0.3, 0.5, 0.7, 0.6, 0.8, 0.9]
SLOW = [0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.5, 0.7, 0.8]
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def settings(tmp_path):
    return ExperimentSettings(target_accuracy=0.6, num_tiers=2, out=tmp_path / "out")


@pytest.fixture
def runs(make_run):
    return [make_run("fedavg", SLOW), make_run("fedat", CLIMB, num_tiers=2)]


def test_json_report_holds_settings_and_methods(settings, runs):
    report = to_json(make_report(settings, runs))
    assert report["target_accuracy"] == 0.6
    assert (report["data"], report["num_clients"], report["seed"], report["rate"]) == (
        "digits",
        50,
        0,
        settings.rate,
    )
    assert list(report["methods"]) == ["fedavg", "fedat"]
    assert report["methods"]["fedat"]["time_to_target_s"] == 400
    assert report["methods"]["fedat"]["bytes_up"] == {"parameters": 1400, "payload": 3500, "wire": 4200}
    assert report["times_less_simulated_time"] == {"fedat": {"fedavg": 2.0}}


def test_files_are_written_whole(settings, runs):
    path = write_report(settings, runs)
    assert path == settings.out / "report.md"
    assert json.loads((settings.out / "report.json").read_text()) == to_json(make_report(settings, runs))
    assert not list(settings.out.glob(".*"))


def test_figures_are_png_files_that_the_text_shows(settings, runs):
    text = write_report(settings, runs).read_text()
    figures = {path.name: path for path in settings.out.glob("*.png")}
    assert set(figures) == {
        "accuracy-over-time.png",
        "accuracy-over-bytes.png",
        "tier-counts-fedat.png",
        "mixing-weights-fedat.png",
    }
    for name, path in figures.items():
        assert path.read_bytes().startswith(PNG_MAGIC)
        assert f"]({name})" in text


def test_text_holds_the_numbers_of_the_table(settings, runs):
    text = write_report(settings, runs).read_text()
    assert "| simulated time to accuracy 0.6 (s) | 800.0 | 400.0 |" in text
    assert "| best accuracy | 0.8000 | 0.9000 |" in text
    assert "| client updates | 18 | 14 |" in text
    assert "fedat reached accuracy 0.6 in 2.0 times less simulated time than fedavg" in text


def test_text_states_compression_against_float32(settings, runs):
    text = write_report(settings, runs).read_text()
    assert "2.50 bytes a parameter, 1.60 times less than float32" in text


def test_a_faster_baseline_is_named_as_the_faster_one(settings, make_run):
    text = write_report(settings, [make_run("fedavg", CLIMB), make_run("fedat", SLOW, 2)]).read_text()
    assert "fedavg reached accuracy 0.6 in 2.0 times less simulated time than fedat" in text


def test_a_baseline_that_never_arrives_gives_no_factor(settings, make_run):
    text = write_report(settings, [make_run("fedavg", [0.1] * 9), make_run("fedat", CLIMB, 2)]).read_text()
    assert "fedat reached accuracy 0.6 after 400 simulated seconds; fedavg did not within 1000" in text
    assert "| not reached | 400.0 |" in text


def test_a_reference_that_never_arrives_claims_nothing(settings, make_run):
    text = write_report(settings, [make_run("fedavg", CLIMB), make_run("fedat", [0.1] * 9, 2)]).read_text()
    assert "fedat did not reach accuracy 0.6" in text
    assert "times less simulated time" not in text


def test_a_run_without_versions_still_makes_a_report(settings, make_run):
    text = write_report(settings, [make_run("fedavg", []), make_run("fedat", [], 2)]).read_text()
    assert "| final accuracy | none | none |" in text
