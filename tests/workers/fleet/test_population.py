import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from fedat_service.errors import ConfigError, RuleError
from workers.data.catalog import load
from workers.fleet.population import Population, is_own


def examples(data):
    return sorted(map(bytes, data[0]))


def test_equal_settings_give_every_process_the_same_clients(fleet):
    one, other = Population(fleet(partition="classes:2")), Population(fleet(partition="classes:2"))
    for client in range(6):
        assert examples(one.train_data(client)) == examples(other.train_data(client))
        assert examples(one.test_data(client)) == examples(other.test_data(client))
        assert one.pace(client).latency_s(3) == other.pace(client).latency_s(3)


def test_another_seed_gives_other_clients(fleet):
    one, other = Population(fleet()), Population(fleet(seed=1))
    assert examples(one.train_data(0)) != examples(other.train_data(0))


def test_every_example_belongs_to_one_client_four_fifths_of_them_to_train(fleet):
    population = Population(fleet())
    parts = [population.train_data(c) for c in range(6)], [population.test_data(c) for c in range(6)]
    train, test = (sum(len(labels) for _, labels in part) for part in parts)
    assert (train, test) == (96, 24)
    assert [population.num_examples(c) for c in range(6)] == [16] * 6


def test_clients_keep_as_much_for_evaluation_as_is_asked_for(fleet):
    population = Population(fleet(test_fraction=0.7))
    assert [population.num_examples(c) for c in range(6)] == [6] * 6
    assert [population.num_test_examples(c) for c in range(6)] == [14] * 6


def test_a_client_computes_then_waits(fleet):
    population = Population(fleet(latency="uniform:3:4", compute_s=20.0))
    delays = {population.pace(client).latency_s(n) for client in range(6) for n in range(5)}
    assert len(delays) == 30
    assert all(23 <= delay <= 24 for delay in delays)


def test_as_many_clients_drop_out_as_are_unstable(fleet):
    population = Population(fleet(num_unstable=2, drop_horizon_s=50.0))
    ends = [population.pace(client).drop_at_s for client in range(6)]
    assert sum(end <= 50.0 for end in ends) == 2
    assert sum(np.isinf(ends)) == 4


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"partition": "classes:99"}, RuleError),
        ({"partition": "by-mood"}, ConfigError),
        ({"latency": "slow"}, ConfigError),
        ({"data": "no-such-set"}, ConfigError),
        ({"data": "nowhere:load"}, ConfigError),
    ],
)
def test_what_cannot_be_is_refused(fleet, fields, error):
    with pytest.raises(error):
        Population(fleet(**fields))


@pytest.fixture
def mine(monkeypatch):
    module = ModuleType("mine")
    module.load = lambda: load("digits")
    module.build = lambda shape, classes: torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, classes)
    )
    module.nothing = lambda *_: None
    module.shy = lambda shape: torch.nn.Linear(64, 10)
    monkeypatch.setitem(sys.modules, "mine", module)


@pytest.mark.usefixtures("mine")
def test_data_and_model_may_be_the_users_own(fleet):
    population = Population(fleet(data="mine:load", model="mine:build"))
    assert len(population.dataset) == 120
    assert list(population.build_model().state_dict()) == ["1.weight", "1.bias"]


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", ["mine:nothing", "mine:missing", "missing:build"])
def test_a_model_of_the_users_own_that_is_none_is_refused(fleet, name):
    with pytest.raises(ConfigError, match=name):
        Population(fleet(model=name)).build_model()


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"model": "mine:shy"}, r"mine:shy is called as shy\(input_shape, num_classes\), but: too many"),
        ({"data": "mine:build"}, r"mine:build is called as build\(\), but: missing"),
        ({"data": "mine:__name__"}, r"__name__\(\), but: 'mine' is not a callable"),
    ],
)
def test_a_function_of_the_users_own_that_cannot_be_called_is_told_how_it_is(fleet, fields, call):
    with pytest.raises(ConfigError, match=call):
        Population(fleet(**fields)).build_model()


def test_a_module_of_the_users_own_that_does_not_parse_is_told_where(fleet, tmp_path, monkeypatch):
    (tmp_path / "unparsed.py").write_text("def build(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"'unparsed:build' cannot be imported: .*unparsed\.py, line 1"):
        Population(fleet(model="unparsed:build")).build_model()


@pytest.mark.parametrize(
    ("name", "own"), [("a.b:c", True), ("mlp", False), ("C:\\data", False), (":f", False), ("a:", False)]
)
def test_the_users_own_are_told_apart_by_module_and_function(name, own):
    assert is_own(name) is own
