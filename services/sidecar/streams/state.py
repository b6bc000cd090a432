"""What a topology remembers: entries by window and key, and what a round has changed of them but not yet written.

A round's changes stand before the entries that it began with, in an `Overlay`. They become entries when the round's
transaction is committed, and are forgotten when it is not; so what is written is never ahead of Kafka. Within a round,
what one record has done can be undone: a record counts as a whole or not at all.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from services.sidecar import json_text

_UNCHANGED = object()


class EntryKey(NamedTuple):
    """Where an entry stands. Sorted by window first, so that old ones are found together."""

    window: int
    """When its window begins, in milliseconds since the epoch; 0 in stores without windows."""
    key: bytes
    """As JSON text."""

    def to_kafka(self) -> bytes:
        """As the key of a record of the changelog."""
        return b"%d:%b" % self

    @classmethod
    def from_kafka(cls, text: bytes) -> EntryKey:
        """ValueError when it is none."""
        window, separator, key = text.partition(b":")
        if not separator:
            raise ValueError(f"{text[:100]!r} is no key of a changelog (window:key)")
        return cls(int(window), key)


STREAM_TIME = EntryKey(-1, b"")
"""Where a store of windows keeps the latest event time that it has seen."""


class Entries(Protocol):
    """What is in a store by its last committed round."""

    def get(self, key: EntryKey) -> bytes | None: ...

    def up_to(self, window: int) -> Iterable[tuple[EntryKey, bytes]]:
        """Entries of windows that begin at or before this, from 0 on, in their order."""


@dataclass(slots=True)
class EntriesInMemory:
    """For trials of topologies, without a disk."""

    entries: dict[EntryKey, bytes] = field(default_factory=dict)

    def get(self, key: EntryKey) -> bytes | None:
        return self.entries.get(key)

    def up_to(self, window: int) -> Iterable[tuple[EntryKey, bytes]]:
        return sorted((key, value) for key, value in self.entries.items() if 0 <= key.window <= window)

    def apply(self, changes: Mapping[EntryKey, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value


class Overlay:
    """A store as a round sees it."""

    def __init__(self, entries: Entries, max_value_bytes: int | None = None) -> None:
        """`max_value_bytes`: of one entry, which has to fit into a record of the changelog."""
        self._entries = entries
        self._max_value_bytes = max_value_bytes
        self._changes: dict[EntryKey, bytes | None] = {}
        self._undo: list[tuple[EntryKey, object]] = []

    def get(self, key: EntryKey) -> bytes | None:
        changed = self._changes.get(key, _UNCHANGED)
        return self._entries.get(key) if changed is _UNCHANGED else changed  # type: ignore[return-value]  # the sentinel

    def put(self, key: EntryKey, value: bytes | None) -> None:
        """None removes the entry. ValueError when it is too large."""
        size = len(key.key) + len(value or b"")
        if self._max_value_bytes is not None and size > self._max_value_bytes:
            raise ValueError(
                f"an entry of {size} bytes does not fit into a changelog ({self._max_value_bytes} at most)"
            )
        self._undo.append((key, self._changes.get(key, _UNCHANGED)))
        self._changes[key] = value

    def up_to(self, window: int) -> Iterator[tuple[EntryKey, bytes]]:
        """As `Entries.up_to`, with what the round has changed."""
        changed = sorted((key, value) for key, value in self._changes.items() if 0 <= key.window <= window)
        untouched = (entry for entry in self._entries.up_to(window) if entry[0] not in self._changes)
        for key, value in heapq.merge(changed, untouched, key=lambda entry: entry[0]):
            if value is not None:
                yield key, value

    def keep(self) -> None:
        """What was done stays in the round."""
        self._undo.clear()

    def undo(self) -> None:
        """Takes back what was done since `keep`."""
        while self._undo:
            key, before = self._undo.pop()
            if before is _UNCHANGED:
                del self._changes[key]
            else:
                self._changes[key] = before  # type: ignore[assignment]  # not the sentinel

    def changes(self) -> Mapping[EntryKey, bytes | None]:
        """What the round has changed, the last value of each."""
        return self._changes

    def forget(self) -> None:
        """The round is over: its changes are entries by now, or never will be."""
        self._changes = {}
        self._undo.clear()


def key_text(key: object) -> bytes:
    """A key as JSON text, the same for equal keys. JsonError for what JSON cannot say."""
    try:
        return orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(json_text.loads(json_text.dumps(key)), sort_keys=True, ensure_ascii=False).encode()


def from_text(text: bytes) -> Any:
    """A key or a value again."""
    return json_text.loads(text)
