import pytest

from fedat_service.errors import ConfigError
from loadtest.experiments.settings import ExperimentSettings

THREE_DECIMALS = {"preset": "fedat", "codec": {"precision": 3}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_clients", 0),
        ("num_clients", "5"),
        ("cohort_size", -1),
        ("cohort_size", 10**9),
        ("rate", 0.0),
        ("rate", float("nan")),
        ("horizon_s", float("inf")),
        ("target_accuracy", 1.5),
        ("num_unstable", 50),
        ("lr", 1e9),
        ("deadline_s", 1e12),
        ("seed", True),
        ("bfloat16", 1),
        ("test_fraction", 0.0),
        ("test_fraction", 1.0),
        ("keep_updates", "yes"),
        ("methods", ()),
        ("methods", ("fedat", "fedat")),
        ("methods", ("fedsgd",)),
        ("reference", "fedsgd"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_the_name_of_its_field(name, value):
    with pytest.raises(ConfigError, match=name):
        ExperimentSettings(**{name: value})


def test_a_refusal_holds_the_value():
    with pytest.raises(ConfigError, match=r"rate: .*got -2"):
        ExperimentSettings(rate=-2)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ConfigError, match=r"num_client: there is no such field") as refused:
        ExperimentSettings(num_client=3, lr=-1.0)
    assert "lr: " in str(refused.value)


def test_a_changed_copy_is_checked_like_the_first():
    settings = ExperimentSettings(seed=3)
    assert settings.changed(lr=0.5) == ExperimentSettings(seed=3, lr=0.5)
    with pytest.raises(ConfigError, match="lr"):
        settings.changed(lr=-1.0)


def test_fedavg_and_fedat_differ_by_proximal_term_tiers_and_codec_only():
    settings = ExperimentSettings(lr=0.02, epochs=4, batch_size=7, prox_mu=0.3)
    fedavg, fedat = (settings.method_of(name) for name in ("fedavg", "fedat"))
    assert fedat.solver.prox_mu == 0.3
    assert fedavg.solver.prox_mu == 0.0
    assert fedat.solver.model_copy(update={"prox_mu": 0.0}) == fedavg.solver
    assert (fedavg.solver.lr, fedavg.solver.epochs, fedavg.solver.batch_size) == (0.02, 4, 7)


def test_other_methods_keep_the_proximal_term_of_their_preset():
    settings = ExperimentSettings(prox_mu=0.3)
    assert settings.method_of("fedprox").solver.prox_mu == 0.001
    assert settings.method_of("tifl").solver.prox_mu == 0.0


def test_a_table_changes_what_it_names_and_nothing_else():
    settings = ExperimentSettings(methods=("p3", "fedat"), method={"p3": THREE_DECIMALS})
    changed, preset = settings.method_of("p3"), settings.method_of("fedat")
    assert (changed.codec.precision, preset.codec.precision) == (3, 4)
    assert changed.model_copy(update={"codec": preset.codec}) == preset


def test_a_table_wins_over_the_experiments_local_work():
    settings = ExperimentSettings(methods=("fedat",), lr=0.1, method={"fedat": {"solver": {"lr": 0.2}}})
    assert settings.method_of("fedat").solver.lr == 0.2


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"preset": "fedat", "codec": {"precision": 9}}, r"method\.p3\.codec\.precision: .*got 9"),
        ({"preset": "fedat", "codec": {"decimals": 3}}, r"method\.p3\.codec\.decimals: there is no such"),
        ({"preset": "fedat", "codecs": {"precision": 3}}, r"method\.p3\.codecs: there is no such field"),
        ({"preset": "fed"}, r"method\.p3: no method 'fed'"),
        ({"codec": {"precision": 3}}, r"method\.p3: no method 'p3'"),
    ],
)
def test_a_table_that_makes_no_method_is_refused_by_its_own_name(table, field):
    with pytest.raises(ConfigError, match=field):
        ExperimentSettings(methods=("p3",), method={"p3": table})


def test_the_event_log_of_the_reference_has_the_plain_name(tmp_path):
    settings = ExperimentSettings(methods=("fedavg", "tifl"), reference="tifl", out=tmp_path)
    assert settings.log_of("tifl") == tmp_path / "events.jsonl"
    assert settings.log_of("fedavg") == tmp_path / "events-fedavg.jsonl"


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"lr": 0.5}, {"horizon_s": 9.0}, {"data": "mnist"}, {"test_fraction": 0.4}]
)
def test_a_runs_conditions_change_with_what_it_follows_from(change):
    settings = ExperimentSettings()
    assert settings.changed(**change).conditions_of("fedat", {}) != settings.conditions_of("fedat", {})


def test_a_runs_conditions_do_not_change_with_the_other_methods_or_the_target(tmp_path):
    settings = ExperimentSettings()
    other = settings.changed(
        methods=("fedat", "p3"), method={"p3": THREE_DECIMALS}, target_accuracy=0.9, processes=1, out=tmp_path
    )
    assert other.conditions_of("fedat", {}) == settings.conditions_of("fedat", {})


def test_epochs_of_an_experiment_take_the_place_of_a_presets_steps():
    settings = ExperimentSettings(methods=("fedals",), reference="fedals", epochs=2)
    assert (settings.method_of("fedals").solver.epochs, settings.method_of("fedals").solver.steps) == (
        2,
        None,
    )
    table = {"fedals": {"solver": {"steps": 7}}}
    assert settings.changed(method=table).method_of("fedals").solver.steps == 7


def test_a_method_may_run_a_share_of_the_time():
    table = {"long": {"preset": "fedavg", "horizon_share": 0.5}}
    settings = ExperimentSettings(
        methods=("fedavg", "long"), reference="fedavg", method=table, horizon_s=80.0
    )
    assert (settings.horizon_of("fedavg"), settings.horizon_of("long")) == (80.0, 40.0)
    assert settings.conditions_of("long", {})["horizon_s"] == 40.0


@pytest.mark.parametrize("share", [0.0, 1.5, -1.0])
def test_no_method_runs_longer_than_the_others_or_not_at_all(share):
    with pytest.raises(ConfigError, match=r"method\.long\.horizon_share"):
        ExperimentSettings(method={"long": {"preset": "fedavg", "horizon_share": share}})


def test_where_it_runs_is_a_condition_as_far_as_bits_depend_on_it(monkeypatch):
    conditions = {}
    for num_gpus, device in ((0, "auto"), (0, "cpu"), (2, "cpu"), (2, "auto"), (2, "cuda:1")):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=num_gpus: count)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda device: f"GPU of kind {device.index}")
        found = ExperimentSettings(device=device).conditions_of("fedat", {})
        conditions[num_gpus, device] = found["device"]
    assert list(conditions.values()) == ["cpu", "cpu", "cpu", "GPU of kind 0", "GPU of kind 1"]
