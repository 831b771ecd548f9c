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


def context_of(request: Request) -> Context:
    """The running service's parts."""
    context: Context = request.app.state.context
    return context


def find_federation(request: Request, name: str) -> Coordinator:
    """The federation of a name, without the framework's dependencies.

    Solving these costs as much as the rest of a small answer: the routes that clients use all the time have
    none.

    Raises:
        NotFound: If there is none.
    """
    return context_of(request).registry.find(name)


FederationName = Annotated[str, Path(max_length=64)]


# Dependencies are coroutines: the framework would run plain functions in threads, for nothing.
async def _parts(request: Request) -> Context:
    return context_of(request)


async def _federation(request: Request, federation: FederationName) -> Coordinator:
    return find_federation(request, federation)


async def _task(task: Annotated[str, Path(max_length=128)]) -> TaskId:
    return TaskId.parse(task)


Parts = Annotated[Context, Depends(_parts)]
Federation = Annotated[Coordinator, Depends(_federation)]
NamedTask = Annotated[TaskId, Depends(_task)]
