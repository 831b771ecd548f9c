import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedat_service.aggregation.report import Summary, summarise
from fedat_service.errors import RuleError, Unprocessable

CLIENTS = st.lists(
    st.integers(1, 1000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.floats(0, 100))),
    min_size=1,
    max_size=20,
)


def test_variance_over_clients_is_the_golden_one(golden):
    case = golden("client_accuracy_variance")
    correct = [round(10 * accuracy) for accuracy in case["inputs"]["acc"]]
    summary = summarise([10] * len(correct), correct, [0.0] * len(correct))
    expected = pytest.approx(case["outputs"]["variance"], rel=case["rtol"])
    assert summary.client_accuracy_variance == expected


def test_accuracy_and_loss_weigh_examples_and_variance_weighs_clients():
    summary = summarise([30, 10], [30, 0], [1.0, 5.0])
    assert summary == Summary(2, 40, accuracy=0.75, loss=2.0, client_accuracy_variance=0.25)


def test_arrays_are_as_good_as_lists():
    arrays = summarise(np.array([4, 4]), np.array([1, 3]), np.array([0.5, 0.25]))
    assert arrays == summarise([4, 4], [1, 3], [0.5, 0.25])


@given(CLIENTS)
def test_accuracy_is_a_share_and_the_variance_of_shares_is_at_most_a_quarter(clients):
    summary = summarise(*zip(*clients, strict=True))
    assert 0 <= summary.accuracy <= 1
    assert 0 <= summary.client_accuracy_variance <= 0.25 + 1e-12


@given(st.integers(1, 1000), st.integers(1, 20))
def test_clients_that_are_alike_have_no_variance(num_examples, num_clients):
    summary = summarise([2 * num_examples] * num_clients, [num_examples] * num_clients, [1.0] * num_clients)
    assert (summary.accuracy, summary.client_accuracy_variance) == (0.5, 0)


@pytest.mark.parametrize("columns", [([], [], []), ([1, 2], [1], [0.1, 0.2]), ([[1]], [[1]], [[0.1]])])
def test_columns_that_are_not_one_number_per_client_are_refused(columns):
    with pytest.raises(RuleError, match="one number per client"):
        summarise(*columns)


@pytest.mark.parametrize(
    ("num_examples", "correct", "field"), [(0, 0, "num_examples"), (5, 6, "correct"), (5, -1, "correct")]
)
def test_a_count_that_cannot_be_is_refused_by_name(num_examples, correct, field):
    with pytest.raises(Unprocessable) as refusal:
        summarise([10, num_examples], [3, correct], [0.0, 0.0])
    assert refusal.value.field == field
