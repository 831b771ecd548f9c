from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.errors import TrainingError
from workers.fleet.evaluation import FleetEvaluator, cut
from workers.fleet.population import Population
from workers.models.state import params_of
from workers.training.torch_trainer import TorchTrainer


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.3"])
def test_one_pass_gives_every_client_what_its_own_evaluation_gives(fleet, partition):
    population = Population(fleet(partition=partition, num_clients=9))
    model = population.build_model()
    params = params_of(model)
    found = {e.client: e for e in FleetEvaluator(model, population)(params)}
    for client in range(9):
        alone = TorchTrainer(model, population.train_data(client), population.test_data(client)).evaluate(
            params
        )
        if alone.num_examples == 0:
            assert population.settings.client_name(client) not in found
            continue
        together = found[population.settings.client_name(client)]
        assert (together.num_examples, together.correct) == (alone.num_examples, alone.correct)
        assert together.loss == pytest.approx(alone.loss, rel=1e-5)


def test_clients_without_a_test_example_are_left_out(fleet):
    population = Population(fleet(limit_per_class=1, num_clients=10))
    assert all(population.num_examples(client) == 1 for client in range(10))
    assert FleetEvaluator(population.build_model(), population)(params_of(population.build_model())) == ()


def test_it_evaluates_what_it_is_given(fleet):
    population = Population(fleet())
    model = population.build_model()
    evaluate = FleetEvaluator(model, population)
    blind = {name: np.zeros_like(array) for name, array in params_of(model).items()}
    assert {round(e.loss, 5) for e in evaluate(blind)} == {round(np.log(10), 5)}


def test_a_diverged_model_is_refused_by_the_first_client_and_its_loss(fleet):
    population = Population(fleet())
    model = population.build_model()
    huge = {name: np.full_like(array, 3e38) for name, array in params_of(model).items()}
    with pytest.raises(TrainingError, match=r"c000.*loss (inf|nan)"):
        FleetEvaluator(model, population)(huge)


@given(st.lists(st.integers(0, 900), min_size=1, max_size=60))
def test_pieces_are_all_clients_in_order_and_neither_many_nor_small(sizes):
    pieces = cut(sizes)
    assert [client for piece in pieces for client in piece] == list(range(len(sizes)))
    assert 1 <= len(pieces) <= 8
    totals = [sum(sizes[client] for client in piece) for piece in pieces]
    assert all(a + b >= 500 for a, b in pairwise(totals[:-1]))


def test_pieces_are_evaluated_as_the_whole_is(fleet):
    population = Population(fleet(num_clients=9))
    model = population.build_model()
    params = params_of(model)
    whole = FleetEvaluator(model, population)(params)
    parts = [FleetEvaluator(model, population, clients)(params) for clients in (range(4), range(4, 9))]
    for one, other in zip(whole, [*parts[0], *parts[1]], strict=True):
        assert (one.client, one.num_examples, one.correct) == (
            other.client,
            other.num_examples,
            other.correct,
        )
        assert one.loss == pytest.approx(other.loss, rel=1e-5)


def test_the_clients_may_be_evaluated_elsewhere(fleet, away):
    population = Population(fleet(model="cnn"))
    params = params_of(population.build_model())
    here = FleetEvaluator(population.build_model(), population)(params)
    assert FleetEvaluator(population.build_model(), population, device=away)(params) == here
