import numpy as np
import pytest

from fedat_service.errors import TrainingError
from workers.fleet.evaluation import FleetEvaluator
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


def test_the_clients_may_be_evaluated_elsewhere(fleet, away):
    population = Population(fleet(model="cnn"))
    params = params_of(population.build_model())
    here = FleetEvaluator(population.build_model(), population)(params)
    assert FleetEvaluator(population.build_model(), population, away)(params) == here
