"""Names of tasks: `(tier, round, sync, client)` is the primary key of an update, readable in a URL."""

import re
from dataclasses import dataclass

from fedat_service.errors import NotFound

PROFILE_TIER = 0
"""Tier number of profile tasks: the client has no tier yet."""

_TASK = re.compile(r"t(0|[1-9]\d{0,5})\.r([1-9]\d{0,14})\.s(0|[1-9]\d{0,5})\.([a-z0-9][a-z0-9_-]{0,63})")


@dataclass(frozen=True, slots=True)
class TaskId:
    """The key of one unit of work."""

    tier: int
    round: int
    sync: int
    client: str

    @property
    def is_profile(self) -> bool:
        """Whether the task only measures latency."""
        return self.tier == PROFILE_TIER

    def __str__(self) -> str:
        return f"t{self.tier}.r{self.round}.s{self.sync}.{self.client}"

    @staticmethod
    def parse(text: str) -> "TaskId":
        """Read a task name.

        Raises:
            NotFound: If it cannot be the name of a task.
        """
        match = _TASK.fullmatch(text)
        if match is None:
            raise NotFound(f"no task {text[:100]!r}", "task")
        return TaskId(int(match[1]), int(match[2]), int(match[3]), match[4])
