"""The federations of one service."""

import asyncio
from functools import partial

from fedat_service.clock import Clock
from fedat_service.coordinator.coordinator import Coordinator
from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import Offload
from fedat_service.errors import Conflict, NotFound, NotNow, TooLarge
from fedat_service.federation.spec import Spec
from fedat_service.params import initial_model
from fedat_service.store.base import Store, unwritten
from fedat_service.wire.messages import CreateFederation


class Registry:
    """Creates federations and finds them again.

    Args:
        store: Where their events go.
        clock: Their time.
        offload: Runs codecs and arithmetic off the event loop.
        limits: How much they may ask of this service.
    """

    def __init__(self, store: Store, clock: Clock, offload: Offload, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._offload = offload
        self._limits = limits
        self._definitions: dict[str, CreateFederation] = {}
        self._coordinators: dict[str, Coordinator] = {}
        self._creating = asyncio.Lock()
        self.stopping = False

    async def create(self, message: CreateFederation) -> tuple[Coordinator, bool]:
        """Make a federation; the same request again finds it.

        Returns:
            The coordinator, and whether it is new.

        Raises:
            Conflict: If the name stands for another federation, or there are too many.
            TooLarge: If the model is larger than this service takes.
            Unprocessable: If the request makes no sense as a whole.
            NotNow: If it cannot be written down, or the service is going down.
        """
        # One at a time: the same request twice, side by side, must find what the first one makes.
        async with self._creating:
            known = self._definitions.get(message.name)
            if known is None:
                return await self._make(message), True
            found = self.find(message.name)
            if known != message:
                freed = "; it is finished, and forgetting it frees its name" if found.state.over else ""
                raise Conflict(f"federation {message.name!r} exists with another definition{freed}", "name")
            return found, False

    async def _make(self, message: CreateFederation) -> Coordinator:
        if self.stopping:
            raise NotNow("the service is going down", retry_after_s=5)
        spec = Spec.of(message)
        await self._forget_oldest()
        self._check_limits(spec)
        draw = partial(initial_model, spec.manifest, spec.seed)
        initial = None if spec.uploads_model else await self._offload(draw)
        try:
            await self._store.create(message.name, message.model_dump_json())
        except OSError as error:
            raise NotNow(unwritten(error), retry_after_s=5) from error
        self._definitions[message.name] = message
        made = Coordinator(spec, initial, self._store, self._clock, self._offload, self._limits)
        self._coordinators[message.name] = made
        return made

    def _check_limits(self, spec: Spec) -> None:
        limits, size = self._limits, spec.manifest.num_floats + spec.manifest.num_integers
        if size > limits.max_parameters:
            raise TooLarge(f"the model has {size} elements", "manifest", limit=limits.max_parameters)
        if sum(not other.state.over for other in self._coordinators.values()) >= limits.max_federations:
            limit = limits.max_federations
            raise Conflict(f"there are {limit} federations at work already", limit=limit)
        held_bytes = sum(
            _memory_bytes(other.spec, over=other.state.over) for other in self._coordinators.values()
        )
        if held_bytes + _memory_bytes(spec) > limits.max_memory_bytes:
            raise TooLarge(
                f"{_memory_bytes(spec)} bytes of arrays more than the {held_bytes} in use; "
                "forgetting a federation frees its own",
                "tiering.num_tiers",
                limit=limits.max_memory_bytes,
            )

    async def forget(self, name: str) -> Coordinator:
        """End a federation, if it is not over, and let go of all but its log: its name is free again.

        Raises:
            NotFound: If there is none by that name.
            NotNow: If its end cannot be written down.
        """
        async with self._creating:
            coordinator = self.find(name)
            await self._let_go(coordinator)
            return coordinator

    async def _forget_oldest(self) -> None:
        """Leave no more finished federations than there may be."""
        finished = [one for one in self._coordinators.values() if one.state.over]
        finished.sort(key=lambda one: one.state.now_s)
        for one in finished[: -self._limits.max_finished]:
            await self._let_go(one)

    async def _let_go(self, coordinator: Coordinator) -> None:
        name = coordinator.spec.name
        if not coordinator.failed:
            await coordinator.stop("deleted by an operator")
        await coordinator.close()
        await self._store.forget(name)
        del self._definitions[name], self._coordinators[name]

    def find(self, name: str) -> Coordinator:
        """Look a federation up.

        Raises:
            NotFound: If there is none by that name.
        """
        if name not in self._coordinators:
            raise NotFound(f"no federation {name[:100]!r}", "federation")
        return self._coordinators[name]

    def page(self, after: str, limit: int) -> list[Coordinator]:
        """Federations by name, from the first one after `after`."""
        names = sorted(name for name in self._coordinators if name > after)
        return [self._coordinators[name] for name in names[:limit]]

    @property
    def failed(self) -> tuple[str, ...]:
        """Federations that a defect brought to a standstill."""
        return tuple(name for name, one in self._coordinators.items() if one.failed)

    def release(self) -> None:
        """Send every waiting client away: the service is going down."""
        self.stopping = True
        for coordinator in self._coordinators.values():
            coordinator.release()

    async def close(self) -> None:
        """Close all coordinators, then the store."""
        for coordinator in self._coordinators.values():
            await coordinator.close()
        await self._store.close()


def _memory_bytes(spec: Spec, *, over: bool = False) -> int:
    """Arrays of a federation at their largest: float32 models and float64 sums of all tiers, and two more.

    Where every client is a round of its own, each may have started from another version. One that is over
    has no sums, and nobody at work.
    """
    size = spec.manifest.num_floats + spec.manifest.num_integers
    if over:
        return 4 * (spec.num_tiers + 2) * size
    bases = spec.rounds_at_once + spec.rule.buffer_size if spec.rule.solo else 0
    return (12 * (spec.num_tiers + 2) + 4 * bases) * size
