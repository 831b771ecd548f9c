"""The federations of one service."""

from fedat_service.clock import Clock
from fedat_service.coordinator.coordinator import Coordinator
from fedat_service.coordinator.limits import Limits
from fedat_service.coordinator.offload import Offload
from fedat_service.errors import Conflict, NotFound, NotNow, TooLarge
from fedat_service.federation.spec import Spec
from fedat_service.store.base import Store
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
        self.stopping = False

    async def create(self, message: CreateFederation) -> tuple[Coordinator, bool]:
        """Make a federation; the same request again finds it.

        Returns:
            The coordinator, and whether it is new.

        Raises:
            Conflict: If the name stands for another federation, or there are too many.
            TooLarge: If the model is larger than this service takes.
            Unprocessable: If the request makes no sense as a whole.
            NotNow: If it cannot be written down.
        """
        known = self._definitions.get(message.name)
        if known is not None:
            if known != message:
                raise Conflict(f"federation {message.name!r} exists with another definition", "name")
            return self.find(message.name), False
        spec = Spec.of(message)
        if spec.manifest.num_floats + spec.manifest.num_integers > self._limits.max_parameters:
            raise TooLarge(
                f"the model has {spec.manifest.num_floats + spec.manifest.num_integers} elements",
                "manifest",
                limit=self._limits.max_parameters,
            )
        if len(self._coordinators) >= self._limits.max_federations:
            raise Conflict(
                f"there are {self._limits.max_federations} federations already",
                limit=self._limits.max_federations,
            )
        self._definitions[message.name] = message
        try:
            await self._store.create(message.name, message.model_dump_json())
        except OSError as error:
            del self._definitions[message.name]
            raise NotNow(f"the log cannot be written: {error}", retry_after_s=5) from error
        self._coordinators[message.name] = Coordinator(spec, self._store, self._clock, self._offload)
        return self._coordinators[message.name], True

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
