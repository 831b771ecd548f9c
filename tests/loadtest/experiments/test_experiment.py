import pytest

from fedat_service.errors import ConfigError
from fedat_service.wire.presets import PRESETS
from loadtest.experiments import Experiment, load_experiment, suite_names

TEXT = """
title = "Two precisions"
claim = "Fewer decimals, fewer bytes."
methods = ["p3", "p4"]
reference = "p4"
data = "mnist"
lr = 0.5

[method.p3]
preset = "fedat"
codec.precision = 3
participation.cold_start = "reported"

[method.p4]
preset = "fedat"

[[expect]]
quantity = "bytes_per_parameter_up"
method = "p3"
at_most = 0.9
of = ["p4"]

[paper]
table = "Table 9"
[paper.values]
best_accuracy = { p3 = 0.4, p4 = 0.5 }
[paper.ratios]
time_to_target_s = { p3 = 2 }
"""


@pytest.fixture
def file_of(tmp_path):
    """`file_of(text)` is a TOML file that holds it."""

    def write(text):
        path = tmp_path / "precision.toml"
        path.write_text(text)
        return path

    return write


def test_a_file_holds_conditions_methods_claims_and_the_papers_numbers(file_of):
    experiment = load_experiment(file_of(TEXT))
    assert (experiment.name, experiment.heading) == ("precision", "Two precisions")
    assert (experiment.methods, experiment.data, experiment.lr) == (("p3", "p4"), "mnist", 0.5)
    assert experiment.method_of("p3").codec.precision == 3
    assert experiment.method_of("p3").participation.cold_start == "reported"
    assert experiment.expect[0].at_most == 0.9
    assert experiment.paper.values["best_accuracy"] == {"p3": 0.4, "p4": 0.5}
    assert experiment.out.parts == ("runs", "precision")


def test_changes_win_over_the_file(file_of):
    assert load_experiment(file_of(TEXT), lr=0.25, out="elsewhere").lr == 0.25


def test_a_subset_of_the_methods_can_be_run(file_of):
    assert load_experiment(file_of(TEXT)).changed(methods=("p3",)).methods == ("p3",)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('data = "mnist"', 'dataset = "mnist"', "dataset: there is no such field"),
        ('data = "mnist"', "self = 1", "self: there is no such field"),
        ('data = "mnist"', "source = 1", "source: there is no such field"),
        ("codec.precision = 3", "self = 1", "method.p3.self: there is no such field"),
        ("codec.precision = 3", "solver.self = 1", "method.p3.solver.self: there is no such field"),
        ("codec.precision = 3", "codec.precison = 3", "method.p3.codec.precison: there is no such field"),
        ("lr = 0.5", "lr = ", "precision.toml: Invalid value"),
        ('quantity = "bytes', 'quantity = "bits', "'bits_per_parameter_up' is not measured"),
        ('of = ["p4"]', 'of = ["p5"]', "expect: there is no method p5"),
        ("at_most = 0.9", "at_most = 0.9\nat_least = 1.0", "either at_most or at_least"),
        ("time_to_target_s", "time", "'time' is not measured"),
        ("{ p3 = 2 }", "{ p6 = 2 }", "there is no method p6"),
    ],
)
def test_what_makes_no_sense_is_refused_with_file_and_field(file_of, before, after, words):
    with pytest.raises(ConfigError) as refused:
        load_experiment(file_of(TEXT.replace(before, after)))
    assert words in str(refused.value)
    assert "precision.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.toml"):
        load_experiment(tmp_path / "no.toml")


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(ConfigError, match="fashion-mnist-2class"):
        load_experiment("fashion-mnist")


def test_without_a_title_methods_and_data_are_the_heading():
    assert Experiment(name="one").heading == "fedavg and fedat on digits"


@pytest.mark.parametrize("name", suite_names())
def test_every_experiment_of_the_package_says_what_it_should_show_and_what_the_paper_prints(name):
    experiment = load_experiment(name)
    assert experiment.name == name
    assert experiment.claim
    assert experiment.expect
    assert experiment.paper.table
    assert experiment.paper.values or experiment.paper.ratios
    assert {one.method for one in experiment.expect} <= set(experiment.methods)
    assert experiment.reference in experiment.methods


def test_the_miniature_of_fashion_mnist_has_the_papers_methods_delays_and_drop_outs():
    experiment = load_experiment("fashion-mnist-2class")
    assert {"fedavg", "tifl", "fedasync", "fedat", "fedbuff"} == set(experiment.methods)
    assert (experiment.latency, experiment.compute_s, experiment.num_unstable) == ("fedat", 20.0, 10)
    assert (experiment.num_clients, experiment.num_tiers, experiment.cohort_size) == (100, 5, 10)


def test_one_experiment_runs_every_preset():
    assert set(load_experiment("all-presets").methods) == set(PRESETS)
