import json

import pytest

from loadtest.experiments import Experiment
from loadtest.experiments.markdown import to_markdown
from loadtest.experiments.outcome import Outcome
from loadtest.experiments.report import to_json, write_report

CLIMB = [0.1, 0.3, 0.5, 0.7, 0.6, 0.8, 0.9]
SLOW = [0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.5, 0.7, 0.8]
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def outcome_of(tmp_path):
    """`outcome_of(runs, **fields)` is an experiment with the target 0.6 on a real clock."""

    def build(runs, virtual=False, **fields):
        experiment = Experiment(
            **{"name": "e", "target_accuracy": 0.6, "num_tiers": 2, "out": tmp_path / "out", **fields}
        )
        return Outcome(experiment, (experiment.seed,), {run.name: (run,) for run in runs}, virtual)

    return build


@pytest.fixture
def runs(make_run):
    return [make_run("fedavg", SLOW), make_run("fedat", CLIMB, num_tiers=2)]


def test_json_report_holds_settings_and_methods(outcome_of, runs):
    report = to_json(outcome_of(runs))
    assert report["target_accuracy"] == 0.6
    assert (report["data"], report["num_clients"], report["seed"], report["rate"]) == (
        "digits",
        50,
        0,
        30.0,
    )
    assert list(report["methods"]) == ["fedavg", "fedat"]
    assert report["methods"]["fedat"]["time_to_target_s"] == 400
    assert report["methods"]["fedat"]["bytes_up"] == {"parameters": 1400, "payload": 3500, "wire": 4200}
    assert report["times_less_simulated_time"] == {"fedat": {"fedavg": 2.0}}


def test_files_are_written_whole(outcome_of, runs):
    outcome = outcome_of(runs)
    out = outcome.experiment.out
    assert write_report(outcome) == out / "report.md"
    assert json.loads((out / "report.json").read_text()) == to_json(outcome)
    assert not list(out.glob(".*"))


def test_figures_are_png_files_that_the_text_shows(outcome_of, runs):
    report = write_report(outcome_of(runs))
    text = report.read_text()
    figures = {path.name: path for path in report.parent.glob("*.png")}
    assert set(figures) == {
        "accuracy-over-time.png",
        "accuracy-over-bytes.png",
        "tier-counts-fedat.png",
        "mixing-weights-fedat.png",
    }
    for name, path in figures.items():
        assert path.read_bytes().startswith(PNG_MAGIC)
        assert f"]({name})" in text


def test_text_holds_the_numbers_of_the_table(outcome_of, runs):
    text = to_markdown(outcome_of(runs), [])
    assert "| simulated time to accuracy 0.6 (s) | 800.0 | 400.0 |" in text
    assert "| best accuracy | 0.8000 | 0.9000 |" in text
    assert "| client updates | 18 | 14 |" in text
    assert "fedat reached accuracy 0.6 in 2.0 times less simulated time than fedavg" in text


def test_text_says_how_many_evaluations_the_best_is_the_largest_of(outcome_of, runs):
    text = to_markdown(outcome_of(runs), [])
    assert "| ... largest of so many evaluations | 9 | 7 |" in text
    assert "Best accuracy is the largest single evaluation" in text
    assert "more of them, and so a higher largest one by chance alone" in text


def test_text_states_compression_against_float32(outcome_of, runs):
    text = to_markdown(outcome_of(runs), [])
    assert "2.50 bytes a parameter, 1.60 times less than float32" in text


def test_a_faster_baseline_is_named_as_the_faster_one(outcome_of, make_run):
    text = to_markdown(outcome_of([make_run("fedavg", CLIMB), make_run("fedat", SLOW, 2)]), [])
    assert "fedavg reached accuracy 0.6 in 2.0 times less simulated time than fedat" in text


def test_methods_as_fast_as_each_other_are_said_to_be(outcome_of, make_run):
    text = to_markdown(outcome_of([make_run("fedavg", CLIMB), make_run("fedat", CLIMB, 2)]), [])
    assert "fedat reached accuracy 0.6 in about the same simulated time as fedavg" in text


def test_a_baseline_that_never_arrives_gives_no_factor(outcome_of, make_run):
    text = to_markdown(outcome_of([make_run("fedavg", [0.1] * 9), make_run("fedat", CLIMB, 2)]), [])
    assert "fedat reached accuracy 0.6 after 400 simulated seconds; fedavg did not within 1000" in text
    assert "| not reached | 400.0 |" in text


def test_a_reference_that_never_arrives_claims_nothing(outcome_of, make_run):
    text = to_markdown(outcome_of([make_run("fedavg", CLIMB), make_run("fedat", [0.1] * 9, 2)]), [])
    assert "fedat did not reach accuracy 0.6" in text
    assert "times less simulated time" not in text


def test_a_run_without_versions_still_makes_a_report(outcome_of, make_run):
    text = to_markdown(outcome_of([make_run("fedavg", []), make_run("fedat", [], 2)]), [])
    assert "| final accuracy | none | none |" in text


def test_the_reference_can_have_any_name(outcome_of, make_run):
    runs = [make_run("fedavg", SLOW), make_run("tifl", CLIMB, 2)]
    text = to_markdown(outcome_of(runs, methods=("fedavg", "tifl"), reference="tifl"), [])
    assert "tifl reached accuracy 0.6 in 2.0 times less simulated time than fedavg" in text


def test_without_a_reference_there_is_no_speed_up(outcome_of, make_run):
    text = to_markdown(outcome_of([make_run("fedavg", CLIMB)], methods=("fedavg",)), [])
    assert "times less simulated time" not in text


def test_tiers_have_their_rounds_and_shares_and_only_mixed_ones_weights(outcome_of, make_run):
    runs = [make_run(name, CLIMB, 2) for name in ("tifl", "fedat")]
    text = to_markdown(outcome_of(runs, methods=("tifl", "fedat")), [])
    assert "| tifl | 7 (100%) | 0 (0%) |" in text
    assert "| fedat: share in the last model | 0.500 | 0.500 |" in text
    assert "tifl: share" not in text


def test_methods_that_do_the_same_are_said_together(outcome_of, runs):
    text = to_markdown(outcome_of(runs), [])
    assert "adam, learning rate 0.01, 3 epochs of 10; proximal term 0 (fedavg)" in text
    assert "sent as polyline with 4 decimals (fedat)" in text


CLAIM = {
    "claim": "FedAT is faster.",
    "expect": ({"quantity": "time_to_target_s", "method": "fedat", "at_most": 0.5, "of": ("fedavg",)},),
}


def test_a_claim_that_shows_is_said_to_show(outcome_of, runs):
    text = to_markdown(outcome_of(runs, **CLAIM), [])
    assert "FedAT is faster." in text
    assert "**It shows in these runs.**" in text
    assert "fedat at most 0.5 times fedavg: **holds**; shows with 1 of 1 seeds (ratios 0.500)" in text


def test_a_claim_that_does_not_show_is_said_not_to(outcome_of, make_run):
    runs = [make_run("fedavg", CLIMB), make_run("fedat", SLOW, 2)]
    text = to_markdown(outcome_of(runs, **CLAIM), [])
    assert "**It does not show in these runs: 0 of 1 expectations hold with every seed.**" in text
    assert "**does not hold**; shows with 0 of 1 seeds (ratios 2.000)" in text


def test_a_claim_without_its_methods_is_not_checked(outcome_of, make_run):
    runs = [make_run("fedavg", CLIMB)]
    text = to_markdown(outcome_of(runs, methods=("fedavg",), **CLAIM), [])
    assert "Nothing of it was checked in these runs." in text


def test_the_papers_numbers_stand_beside_ours(outcome_of, runs):
    paper = {
        "table": "Table 9",
        "values": {"best_accuracy": {"fedavg": 0.5}},
        "ratios": {"time_to_target_s": {"fedavg": 5.67}},
        "note": "Another model.",
    }
    text = to_markdown(outcome_of(runs, paper=paper), [])
    assert "Table 9." in text
    assert "| best accuracy | 0.8000 / 0.5 | 0.9000 / - |" in text
    assert "times that of fedat | 2.00 / 5.67 | 1.00 / - |" in text
    assert "Another model." in text


def test_a_simulation_says_that_its_time_was_virtual(outcome_of, runs):
    real, virtual = (to_markdown(outcome_of(runs, virtual=flag), []) for flag in (False, True))
    assert "on real HTTP between real processes" in real
    assert "in virtual time, service and clients in one process" in virtual
    assert "simulated seconds a second" not in virtual


def test_the_report_tells_how_much_only_evaluates(outcome_of, runs):
    assert "keep 45.5 % of it for evaluation" in to_markdown(outcome_of(runs, test_fraction=100 / 220), [])


def test_a_run_in_bfloat16_says_so(outcome_of, runs):
    exact, rounded = (to_markdown(outcome_of(runs, bfloat16=flag), []) for flag in (False, True))
    assert "`, its layers in bfloat16: " in rounded
    assert "bfloat16" not in exact


NEVER = [0.1] * 9
EARLY = [0.7] * 9
"""Reaches 0.6 at 200 s; CLIMB at 400 s, SLOW at 800 s."""


@pytest.fixture
def over_seeds(outcome_of, make_run):
    """`over_seeds(fedavg=[accuracies of each seed], fedat=...)` is the report on those runs."""

    def write(**fields):
        runs = {name: tuple(make_run(name, one) for one in seeds) for name, seeds in fields.items()}
        seeds = tuple(range(len(runs["fedat"])))
        return to_markdown(Outcome(outcome_of([]).experiment, seeds, runs, virtual=True), [])

    return write


def test_a_speed_up_over_seeds_is_the_geometric_mean(over_seeds):
    # Four times less with one seed, and as much more with the other.
    text = over_seeds(fedavg=[SLOW, EARLY], fedat=[EARLY, SLOW])
    assert "fedat reached accuracy 0.6 in about the same simulated time as fedavg" in text
    assert "(geometric mean; 0.2 to 4.0 times less by seed)" in text


def test_the_slower_one_is_slower_by_the_same_factor(over_seeds):
    # Ratios 1/4 and 2: their geometric mean is 1/sqrt(2).
    text = over_seeds(fedavg=[EARLY, SLOW], fedat=[SLOW, CLIMB])
    expected = "fedavg reached accuracy 0.6 in 1.4 times less simulated time than fedat"
    assert f"**{expected} (geometric mean; 0.5 to 4.0 times less by seed).**" in text


def test_seeds_that_agree_need_no_extremes(over_seeds):
    text = over_seeds(fedavg=[SLOW, SLOW], fedat=[CLIMB, CLIMB])
    assert "**fedat reached accuracy 0.6 in 2.0 times less simulated time than fedavg.**" in text


def test_a_speed_up_counts_only_the_seeds_where_both_arrived(over_seeds):
    text = over_seeds(fedavg=[SLOW, NEVER, NEVER], fedat=[CLIMB, EARLY, NEVER])
    assert (
        "**fedat reached accuracy 0.6 in 2.0 times less simulated time than fedavg, over the seeds where "
        "both did: 1 of 3 (fedat did with 2, fedavg with 1).**"
    ) in text


def test_methods_that_arrive_with_different_seeds_are_not_compared(over_seeds):
    text = over_seeds(fedavg=[NEVER, CLIMB], fedat=[EARLY, NEVER])
    assert (
        "**fedat reached accuracy 0.6 with 1 of 2 seeds, fedavg with 1, and with no seed both: no speed-up "
        "can be stated.**"
    ) in text
    assert "fedavg did not" not in text


def test_who_arrives_with_some_seeds_and_the_other_with_none_are_said_so(over_seeds):
    text = over_seeds(fedavg=[NEVER, NEVER], fedat=[EARLY, NEVER])
    assert (
        "**fedat reached accuracy 0.6 with 1 of 2 seeds, after 200 simulated seconds; fedavg did not within "
        "1000.**"
    ) in text


def test_ratios_beside_the_paper_are_geometric_means(outcome_of, make_run):
    paper = {"table": "Table 9", "ratios": {"time_to_target_s": {"fedavg": 5.67}}}
    runs = {
        "fedavg": (make_run("fedavg", SLOW), make_run("fedavg", EARLY)),
        "fedat": (make_run("fedat", EARLY), make_run("fedat", SLOW)),
    }
    text = to_markdown(Outcome(outcome_of([], paper=paper).experiment, (0, 1), runs, virtual=True), [])
    assert "times that of fedat | 1.00 (0.25 to 4.00) / 5.67 |" in text
