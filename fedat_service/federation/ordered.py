"""A sorted set that never changes, of which a copy with one item more or less costs next to nothing."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar


class _Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool:  # noqa: ANN401 - each type compares with its own
        ...


T = TypeVar("T", bound=_Sortable)

_PART = 128
"""Items of a fresh part; one that has grown to twice as many is cut in two."""

_first = itemgetter(0)


class Ordered(Generic[T]):
    """Sorted items in short parts, so that no single item costs as much as copying all of them.

    Args:
        items: What is in it; what stands twice is in it once.
    """

    __slots__ = ("_parts", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        ordered = sorted(set(items))
        self._parts: tuple[tuple[T, ...], ...] = tuple(
            tuple(ordered[at : at + _PART]) for at in range(0, len(ordered), _PART)
        )
        self._size = len(ordered)

    def with_items(self, items: Iterable[T]) -> "Ordered[T]":
        """A copy that has these too."""
        added = list(items)
        if len(added) > _PART:
            return Ordered(chain(self, added))
        changed = self
        for item in added:
            changed = changed._with(item)
        return changed

    def without(self, items: Iterable[T]) -> "Ordered[T]":
        """A copy that has none of these."""
        changed = self
        for item in items:
            changed = changed._without(item)
        return changed

    def at(self, ranks: Iterable[int]) -> list[T]:
        """The items of these ranks, from 0; each must be below the size."""
        ends = list(accumulate(map(len, self._parts), initial=0))
        found = []
        for rank in ranks:
            part = bisect_right(ends, rank) - 1
            found.append(self._parts[part][rank - ends[part]])
        return found

    @property
    def first(self) -> T | None:
        """The least item."""
        return self._parts[0][0] if self._parts else None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._parts)

    def __contains__(self, item: T) -> bool:
        if not self._parts:
            return False
        part = self._parts[self._part_of(item)]
        at = bisect_left(part, item)
        return at < len(part) and part[at] == item

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ordered):
            return NotImplemented
        return self._size == other._size and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"Ordered({list(self)!r})"

    def _part_of(self, item: T) -> int:
        """Which part an item is in, or would be in."""
        return max(0, bisect_right(self._parts, item, key=_first) - 1)

    def _with(self, item: T) -> "Ordered[T]":
        if not self._parts:
            return self._of(((item,),), 1)
        p = self._part_of(item)
        part = self._parts[p]
        at = bisect_left(part, item)
        if at < len(part) and part[at] == item:
            return self
        grown = (*part[:at], item, *part[at:])
        cut = (grown,) if len(grown) < 2 * _PART else (grown[:_PART], grown[_PART:])
        return self._of((*self._parts[:p], *cut, *self._parts[p + 1 :]), self._size + 1)

    def _without(self, item: T) -> "Ordered[T]":
        if item not in self:
            return self
        p = self._part_of(item)
        part = self._parts[p]
        at = bisect_left(part, item)
        left = (*part[:at], *part[at + 1 :])
        return self._of((*self._parts[:p], *((left,) if left else ()), *self._parts[p + 1 :]), self._size - 1)

    @staticmethod
    def _of(parts: tuple[tuple[T, ...], ...], size: int) -> "Ordered[T]":
        made: Ordered[T] = Ordered.__new__(Ordered)
        made._parts, made._size = parts, size
        return made
