"""What handlers share: found through the app, never through a global."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request

from fedat_service.coordinator.coordinator import Coordinator
from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.registry import Registry
from fedat_service.federation.tasks import TaskId
from fedat_service.http.body import UploadBudget


@dataclass(frozen=True)
class Context:
    """One service's parts."""

    limits: Limits
    registry: Registry
    budget: UploadBudget


async def context_of(request: Request) -> Context:
    """The running service's parts."""
    context: Context = request.app.state.context
    return context


# Dependencies are coroutines: the framework would run plain functions in threads, for nothing.
Parts = Annotated[Context, Depends(context_of)]


async def coordinator_of(parts: Parts, federation: Annotated[str, Path(max_length=64)]) -> Coordinator:
    """The federation that the path names."""
    return parts.registry.find(federation)


async def task_of(task: Annotated[str, Path(max_length=128)]) -> TaskId:
    """The task that the path names."""
    return TaskId.parse(task)


Federation = Annotated[Coordinator, Depends(coordinator_of)]
NamedTask = Annotated[TaskId, Depends(task_of)]
