from typing import get_args

import pytest

from fedat_service.errors import TrainingError
from fedat_service.wire.settings import Solver
from workers.training.solvers.registry import SOLVERS
from workers.training.trainer import Sync

NAMES = get_args(Solver.model_fields["name"].annotation)


def test_every_solver_of_the_settings_has_its_half():
    assert set(SOLVERS) == set(NAMES)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"mime"}))
def test_only_mime_has_a_sync_without_work(quadratic, split, name):
    trainer, start = quadratic([1, 1], [0, 0]), split([0, 0], (2,))
    with pytest.raises(TrainingError, match=f"solver {name} is to do no work"):
        trainer.train(start, Solver(name=name), 0, Sync(blocks=0))
