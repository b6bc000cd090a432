"""The state of a topology: entries by window and key, and a round's changes that are not written yet.

An `Overlay` has a round's changes on top of the entries that the round began with. The changes become entries when the
round's transaction is committed, and are dropped if it is aborted; so entries are never ahead of Kafka. Within a round,
the changes of one record can be undone: a record counts as a whole or not at all.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from services.sidecar.formats import json_text

_UNCHANGED = object()


class EntryKey(NamedTuple):
    """The key of an entry. It sorts by window first, so that old entries are found together."""

    window: int
    """The start of the entry's window, in milliseconds since the epoch; 0 in stores without windows."""
    key: bytes
    """The record's key as JSON text."""

    def to_kafka(self) -> bytes:
        """The key of the entry's record in the changelog."""
        return b"%d:%b" % self

    @classmethod
    def from_kafka(cls, text: bytes) -> EntryKey:
        """The entry key in the key of a changelog record. ValueError when the text is no such key."""
        window, separator, key = text.partition(b":")
        if not separator:
            raise ValueError(f"{text[:100]!r} is no key of a changelog (window:key)")
        return cls(int(window), key)


STREAM_TIME = EntryKey(-1, b"")
"""The entry in which a store of windows keeps the latest event time seen."""


class Entries(Protocol):
    """The entries of a store as of its last committed round."""

    def get(self, key: EntryKey) -> bytes | None: ...

    def up_to(self, window: int) -> Iterable[tuple[EntryKey, bytes]]:
        """Entries of windows that begin at 0 or later, and at or before `window`, in their order."""


@dataclass(slots=True)
class EntriesInMemory:
    """Entries without a disk, for a TopologyTestDriver."""

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
    """A store with the changes of the present round."""

    def __init__(self, entries: Entries, max_value_bytes: int | None = None) -> None:
        """`max_value_bytes`: the bound of one entry, which has to fit into a record of the changelog."""
        self._entries = entries
        self._max_value_bytes = max_value_bytes
        self._changes: dict[EntryKey, bytes | None] = {}
        self._undo: list[tuple[EntryKey, object]] = []

    def get(self, key: EntryKey) -> bytes | None:
        changed = self._changes.get(key, _UNCHANGED)
        return self._entries.get(key) if changed is _UNCHANGED else changed  # type: ignore[return-value]  # the sentinel

    def put(self, key: EntryKey, value: bytes | None) -> None:
        """Sets the value of an entry; None removes the entry. ValueError when the entry is too large."""
        size = len(key.key) + len(value or b"")
        if self._max_value_bytes is not None and size > self._max_value_bytes:
            raise ValueError(
                f"an entry of {size} bytes does not fit into a changelog ({self._max_value_bytes} at most)"
            )
        self._undo.append((key, self._changes.get(key, _UNCHANGED)))
        self._changes[key] = value

    def up_to(self, window: int) -> Iterator[tuple[EntryKey, bytes]]:
        """As `Entries.up_to`, with the round's changes."""
        changed = sorted((key, value) for key, value in self._changes.items() if 0 <= key.window <= window)
        untouched = (entry for entry in self._entries.up_to(window) if entry[0] not in self._changes)
        for key, value in heapq.merge(changed, untouched, key=lambda entry: entry[0]):
            if value is not None:
                yield key, value

    def keep(self) -> None:
        """Makes the changes since the last `keep` a part of the round."""
        self._undo.clear()

    def undo(self) -> None:
        """Takes back the changes since the last `keep`."""
        while self._undo:
            key, before = self._undo.pop()
            if before is _UNCHANGED:
                del self._changes[key]
            else:
                self._changes[key] = before  # type: ignore[assignment]  # not the sentinel

    def changes(self) -> Mapping[EntryKey, bytes | None]:
        """The round's changes: the last value of each changed entry."""
        return self._changes

    def forget(self) -> None:
        """Drops the changes at the end of a round: they are entries by now, or the round was aborted."""
        self._changes = {}
        self._undo.clear()


def key_text(key: object) -> bytes:
    """A key as JSON text, the same for equal keys. JsonError for a key that JSON cannot express."""
    try:
        return orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(json_text.loads(json_text.dumps(key)), sort_keys=True, ensure_ascii=False).encode()


def from_text(text: bytes) -> Any:
    """The key or value of a JSON text."""
    return json_text.loads(text)
