"""Solvers by name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedat_service.errors import TrainingError
from fedat_service.wire.settings import Solver
from workers.training.optimizer import PLAIN
from workers.training.solvers.adaptive import Adaptive
from workers.training.solvers.mime import Mime
from workers.training.solvers.plain import Plain
from workers.training.solvers.problem import LocalSolver, Problem
from workers.training.solvers.scaffold import Scaffold
from workers.training.trainer import Kept, Sync

SOLVERS: Mapping[str, Callable[[Problem, Solver, Sync, Kept], LocalSolver]] = MappingProxyType(
    {
        **dict.fromkeys(PLAIN, Plain),
        "scaffold": Scaffold,
        **dict.fromkeys(("fedams", "fedlamb", "mimeams", "mimelamb"), Adaptive),
        "mime": Mime,
    }
)


def local_solver(problem: Problem, solver: Solver, sync: Sync, kept: Kept) -> LocalSolver:
    """The client's half of a solver, ready for the work of one sync.

    Raises:
        TrainingError: If only a gradient is asked for, but the solver sends none without work; or what came
            down is not what it needs.
    """
    if sync.blocks == 0 and solver.name != "mime":
        raise TrainingError(f"solver {solver.name} is to do no work, but only mime has a sync without")
    return SOLVERS[solver.name](problem, solver, sync, kept)
