import pytest

from fedat_service.errors import ConfigError
from fedat_service.federation.spec import Spec
from fedat_service.methods.schedule import first_cycle
from fedat_service.wire.messages import ManifestMessage
from fedat_service.wire.presets import PRESETS
from loadtest.experiments import Experiment, load_experiment, suite_names
from loadtest.experiments.federations import federation_of
from workers.models.networks import build
from workers.models.state import manifest_of

SHAPES = {
    "fashion-mnist": ((1, 28, 28), 10),
    "cifar-10": ((3, 32, 32), 10),
    "vader": ((1, 1, 1000), 2),
    "vader-text": ((1, 1, 16), 128),
}
"""Of an example of the suite's data, and the number of classes."""

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


@pytest.mark.parametrize(
    ("file", "name"),
    [("E.toml", "e"), ("Figure 5.toml", "figure-5"), ("_two.runs.toml", "two-runs"), ("a_b.toml", "a_b")],
)
def test_the_name_of_any_file_makes_the_name_of_an_experiment(tmp_path, file, name):
    (tmp_path / file).write_text("")
    assert load_experiment(tmp_path / file).name == name


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
    assert load_experiment(file_of(TEXT), methods=("p3",)).methods == ("p3",)
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
        ('of = ["p4"]', 'of = ["p4", "tifl"]', "expect: tifl is not among the methods"),
        ('method = "p3"', 'method = "fedat"', "expect: fedat is not among the methods"),
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
    with pytest.raises(ConfigError, match=r"no\.toml: No such file or directory$"):
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
    printed = experiment.paper.values or experiment.paper.ratios
    assert printed or "not legible in our copy" in experiment.paper.note
    assert {one.method for one in experiment.expect} <= set(experiment.methods)
    assert experiment.reference in experiment.methods


def _manifest(experiment):
    """Of the model that an experiment trains, on data of that shape."""
    input_shape, num_classes = SHAPES[experiment.data]
    return manifest_of(build(experiment.model, input_shape, num_classes, seed=0))


@pytest.mark.parametrize("name", suite_names())
def test_every_method_of_every_experiment_of_the_package_makes_a_federation(name):
    experiment = load_experiment(name)
    manifest = ManifestMessage.of(_manifest(experiment))
    for method in experiment.methods:
        Spec.of(federation_of(method, experiment, manifest))


@pytest.mark.parametrize("name", suite_names())
def test_methods_that_run_less_take_as_many_steps_in_all(name):
    experiment = load_experiment(name)
    for method, table in experiment.method.items():
        if table.horizon_share < 1:
            steps = experiment.method_of(experiment.reference).solver.steps
            own = experiment.method_of(method)
            assert own.solver.steps * table.horizon_share == pytest.approx(steps)


def test_every_table_of_fedlama_fedals_and_fedlamb_has_an_experiment():
    tables = "\n".join(load_experiment(name).title for name in suite_names())
    for paper, parts in [
        ("FedLAMA, Table", ["Table 1", "Table 2", "Tables 3 and 4"]),
        ("FedALS, Table", ["Tables 1 to 3", "Table 1 with iid data", "Table 1, the language model"]),
        ("Fed-LAMB, Figure", ["Figure 2", "Figures 3 and 5"]),
    ]:
        assert all(f"{paper.split(',')[0]}, {part}" in tables for part in parts)


def test_fedlamas_second_table_differs_from_its_first_in_network_and_numbers():
    first, second = (load_experiment(f"fedlama-table-{number}") for number in (1, 2))
    assert first.methods == second.methods
    assert [first.method_of(name) for name in first.methods] == [
        second.method_of(name) for name in second.methods
    ]
    assert (first.data, first.partition) == (second.data, second.partition)
    assert second.paper.ratios["parameters_up_m"]["fedlama-10-2"] == 0.6232
    assert second.paper.ratios["parameters_up_m"]["fedlama-10-4"] == 0.4326


def test_the_language_model_of_fedals_averages_its_first_five_layers_of_six_rarely():
    experiment = load_experiment("fedals-table-1-text")
    manifest = _manifest(experiment)
    intervals = first_cycle(experiment.method_of("fedals").schedule, manifest).intervals
    rare = {tensor.layer for tensor in manifest.tensors if intervals[tensor.name] == 10}
    assert rare == {
        layer for layer in manifest.layers if layer.startswith(tuple(f"layers.{n}." for n in range(5)))
    }
    assert set(intervals.values()) == {1, 10}


def test_the_miniature_of_fashion_mnist_has_the_papers_methods_delays_and_drop_outs():
    experiment = load_experiment("fashion-mnist-2class")
    assert {"fedavg", "tifl", "fedasync", "fedat", "fedbuff"} == set(experiment.methods)
    assert (experiment.latency, experiment.compute_s, experiment.num_unstable) == ("fedat", 20.0, 10)
    assert (experiment.num_clients, experiment.num_tiers, experiment.cohort_size) == (100, 5, 10)


def test_one_experiment_runs_every_preset():
    assert set(load_experiment("all-presets").methods) == set(PRESETS)
