"""Names that the client of one connection uses, for operators who want to know which clients a change would touch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

TOPICS_REMEMBERED = 100
GROUPS_REMEMBERED = 20
IDS_REMEMBERED = 20
LONGEST_NAME = 255
"""Letters of a name that are kept. A topic's name has 249 at most, but a client may send any other name of 100 MiB."""


def shortened(name: str) -> str:
    """The name, or the beginning of a name that is too long to be kept."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


class Names:
    """The last names, up to a capacity."""

    __slots__ = ("_capacity", "_names")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._names: dict[str, None] = {}

    def note(self, name: str) -> None:
        name = shortened(name)
        if name in self._names:
            return
        if len(self._names) >= self._capacity:
            del self._names[next(iter(self._names))]
        self._names[name] = None

    def note_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.note(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


@dataclass(slots=True)
class Uses:
    """Names since the client connected."""

    produced: Names = field(default_factory=lambda: Names(TOPICS_REMEMBERED))
    """Topics that it produced to."""
    consumed: Names = field(default_factory=lambda: Names(TOPICS_REMEMBERED))
    """Topics that it fetched from."""
    groups: Names = field(default_factory=lambda: Names(GROUPS_REMEMBERED))
    """Groups that it joined, or committed for."""
    transactional_ids: Names = field(default_factory=lambda: Names(IDS_REMEMBERED))
