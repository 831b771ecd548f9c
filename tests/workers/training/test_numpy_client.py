import numpy as np
import pytest

from fedat_service.errors import TrainingError
from fedat_service.wire.settings import Solver
from workers.training.numpy_client import NumPyClientTrainer
from workers.training.trainer import Kept, Sync

START = {"w": np.array([[1.0, 2.0]], np.float32), "n": np.array([3], np.int64)}


class AddOne:
    """As Flower's examples are written: arrays in, arrays out."""

    def fit(self, parameters, config):
        self.config = config
        return [array + 1 for array in parameters], 12, {"loss": 0.5, "note": "text"}

    def evaluate(self, parameters, config):
        return 0.25, 8, {"accuracy": 0.75}


class Answers:
    """Returns what it was made with."""

    def __init__(self, answer):
        self.answer = answer

    def fit(self, parameters, config):
        return self.answer

    def evaluate(self, parameters, config):
        return self.answer


def test_arrays_go_in_and_come_out_in_the_order_of_the_tensors():
    result = NumPyClientTrainer(AddOne()).train(START, Solver(), seed=0)
    assert {name: array.tolist() for name, array in result.params.items()} == {"w": [[2, 3]], "n": [4]}
    assert result.num_examples == 12
    assert result.metrics == {"loss": 0.5}


def test_the_solver_arrives_under_the_names_of_flower_code():
    client = AddOne()
    NumPyClientTrainer(client, applies_prox=True).train(
        START, Solver(lr=0.1, epochs=3, batch_size=7, prox_mu=0.4), seed=5
    )
    expected = {"local_epochs": 3, "lr": 0.1, "batch_size": 7, "proximal_mu": 0.4, "seed": 5}
    assert expected.items() <= client.config.items()
    assert client.config["proximal-mu"] == 0.4
    assert client.config["local-epochs"] == 3


def test_results_take_the_dtype_of_the_start():
    result = NumPyClientTrainer(Answers(([[[5, 6]], [7.0]], 1, {}))).train(START, Solver(), 0)
    assert [array.dtype for array in result.params.values()] == [np.float32, np.int64]


def test_a_client_may_write_to_what_it_gets():
    class Greedy(AddOne):
        def fit(self, parameters, config):
            parameters[0][:] = 9
            return parameters, 1, {}

    assert NumPyClientTrainer(Greedy()).train(START, Solver(), 0).params["w"].tolist() == [[9, 9]]
    assert START["w"].tolist() == [[1, 2]]


def test_a_proximal_term_that_the_client_does_not_add_is_refused():
    with pytest.raises(TrainingError, match=r"prox_mu 0\.4, which only the client's own fit can add"):
        NumPyClientTrainer(AddOne()).train(START, Solver(prox_mu=0.4), seed=0)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (([START["w"]], 1, {}), "fit returned 1 arrays for 2 tensors"),
        (([START["w"], START["n"]], 0, {}), "fit returned 0 examples"),
        (([START["w"].T, START["n"]], 1, {}), r"shape \[2, 1\] for 'w', not \[1, 2\]"),
        (([START["w"] * np.nan, START["n"]], 1, {}), "infinite or NaN values for 'w'"),
    ],
)
def test_an_answer_that_must_not_be_sent_is_named(answer, complaint):
    with pytest.raises(TrainingError, match=complaint):
        NumPyClientTrainer(Answers(answer)).train(START, Solver(), 0)


def test_an_evaluation_counts_right_answers():
    result = NumPyClientTrainer(AddOne()).evaluate(START)
    assert (result.num_examples, result.correct, result.loss) == (8, 6, 0.25)


@pytest.mark.parametrize("metrics", [{}, {"accuracy": "high"}, {"accuracy": 75.0}])
def test_an_evaluation_without_an_accuracy_is_refused(metrics):
    with pytest.raises(TrainingError, match="must return an accuracy of"):
        NumPyClientTrainer(Answers((0.1, 8, metrics))).evaluate(START)


def test_the_blocks_of_a_sync_are_epochs_of_one_call_with_a_seed_of_its_own():
    client = AddOne()
    result = NumPyClientTrainer(client).train(START, Solver(epochs=2), 5, Sync(index=1, blocks=3))
    assert (client.config["local_epochs"], client.config["seed"]) == (6, 6)
    assert (result.slots, result.kept) == ({}, Kept())


@pytest.mark.parametrize(
    ("solver", "complaint"),
    [
        (Solver(name="scaffold"), "asks for solver scaffold"),
        (Solver(steps=3), "asks for a number of steps"),
        (Solver(reset="never"), "asks for an optimizer that is never reset"),
    ],
)
def test_what_fit_cannot_be_told_is_refused(solver, complaint):
    with pytest.raises(TrainingError, match=complaint):
        NumPyClientTrainer(AddOne()).train(START, solver, 0)


def test_a_gradient_without_work_is_refused():
    with pytest.raises(TrainingError, match="asks for solver adam"):
        NumPyClientTrainer(AddOne()).train(START, Solver(), 0, Sync(blocks=0))


def test_a_proximal_term_around_what_fit_never_saw_is_refused():
    trainer = NumPyClientTrainer(AddOne(), applies_prox=True)
    trainer.train(START, Solver(prox_mu=0.4), 0, Sync(fetched=["w", "n"]))
    with pytest.raises(TrainingError, match="as they were last fetched"):
        trainer.train(START, Solver(prox_mu=0.4), 0, Sync(index=1, fetched=["w"]))
