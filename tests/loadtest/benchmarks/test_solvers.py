from typing import get_args

from fedat_service.wire.settings import Solver
from loadtest.benchmarks.solvers import compare


def test_a_round_of_every_solver_is_measured():
    costs_s = compare("logistic", num_examples=20, repeats=1)
    assert set(costs_s) == set(get_args(Solver.model_fields["name"].annotation))
    assert all(cost_s > 0 for cost_s in costs_s.values())
