"""The operators: each takes a record, may read its store, and passes records on. No operator does I/O.

An operator passes records on with `flow.forward(self, record)`: they reach all operators that follow it.
`flow` is a `Task`, which runs one partition of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from services.sidecar.formats import Format, json_text
from services.sidecar.streams.records import StoreSpec, StreamRecord, Target, Tumbling, Windowed
from services.sidecar.streams.state import STREAM_TIME, EntryKey, Overlay, from_text, key_text


class Flow(Protocol):
    """The actions that an operator may take besides computing."""

    def forward(self, operator: Operator, record: StreamRecord) -> None:
        """Passes the record on to all operators that follow this operator."""

    def write(self, target: Target, record: StreamRecord) -> None:
        """Writes the record to a topic, in the round's transaction."""

    def ask(self, hook: Hook, record: StreamRecord) -> None:
        """Sends the record to the backend, with others of the round; the records of the answer go on."""

    def store(self, spec: StoreSpec) -> Overlay:
        """The part of a store that belongs to this partition."""

    def dropped(self, reason: str) -> None:
        """Counts a record that ends here."""


class Operator:
    """A node of the graph. `label` names the node in errors."""

    store: StoreSpec | None = None

    def __init__(self, label: str) -> None:
        self.label = label
        self.following: list[Operator] = []

    @property
    def reaches(self) -> Iterable[Operator]:
        """All operators that may get records from this operator."""
        return self.following

    def process(self, record: StreamRecord, flow: Flow) -> None:
        flow.forward(self, record)


class Source(Operator):
    """The entry of a topic's records."""

    def __init__(
        self,
        topic: str,
        key_format: Format,
        value_format: Format,
        *,
        time: Callable[[Any], int] | None = None,
        is_table: bool = False,
        partitions: int | None = None,
        is_internal: bool = False,
    ) -> None:
        super().__init__(topic)
        self.topic = topic
        self.key_format = key_format
        self.value_format = value_format
        self.is_table = is_table
        """Whether the topic is read to its end before records of other topics are joined with it."""
        self.is_internal = is_internal
        self.partitions = partitions
        """The number of partitions of an internal topic, if the user gives it."""
        self._time = time

    def process(self, record: StreamRecord, flow: Flow) -> None:
        if self._time is not None:
            record = record._replace(timestamp=_event_time(self._time(record.value)))
        flow.forward(self, record)


class Filter(Operator):
    """Passes on the records that a predicate accepts."""

    def __init__(self, label: str, wanted: Callable[[Any, Any], bool]) -> None:
        super().__init__(label)
        self._wanted = wanted

    def process(self, record: StreamRecord, flow: Flow) -> None:
        if self._wanted(record.key, record.value):
            flow.forward(self, record)


class FlatMap(Operator):
    """Makes any number of records of one record; `map` makes exactly one."""

    def __init__(self, label: str, function: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        super().__init__(label)
        self._function = function

    def process(self, record: StreamRecord, flow: Flow) -> None:
        for key, value in self._function(record.key, record.value):
            flow.forward(self, record._replace(key=key, value=value))


class Aggregate(Operator):
    """One value for each key, computed anew with each record; None removes the value."""

    def __init__(self, store: StoreSpec, initial: Callable[[], Any], add: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__(f"store {store.name}")
        self.store: StoreSpec = store
        self._initial = initial
        self._add = add

    def process(self, record: StreamRecord, flow: Flow) -> None:
        if record.key is None:
            flow.dropped("no_key")
            return
        entries, place = flow.store(self.store), EntryKey(0, key_text(record.key))
        before = entries.get(place)
        total = self._initial() if before is None else from_text(before)
        total = self._add(record.key, record.value, total)
        entries.put(place, None if total is None else json_text.dumps(total))
        flow.forward(self, record._replace(value=total))


class WindowedAggregate(Operator):
    """One value for each key and window of event time. `closed` passes each value on once, when its window is over."""

    def __init__(
        self, store: StoreSpec, window: Tumbling, initial: Callable[[], Any], add: Callable[[Any, Any, Any], Any]
    ) -> None:
        super().__init__(f"store {store.name}")
        self.store: StoreSpec = store
        self.closed = Operator(f"closed windows of {store.name}")
        self._window = window
        self._initial = initial
        self._add = add

    @property
    def reaches(self) -> Iterable[Operator]:
        return (*self.following, self.closed)

    def process(self, record: StreamRecord, flow: Flow) -> None:
        entries = flow.store(self.store)
        seen = int(entries.get(STREAM_TIME) or -1)
        now = max(seen, record.timestamp)
        start = self._window.start_of(record.timestamp)
        if record.key is None:
            flow.dropped("no_key")
        elif start <= self._window.last_closed(now):
            flow.dropped("late")
        else:
            self._count_in(record, start, entries, flow)
        if now > seen:
            entries.put(STREAM_TIME, b"%d" % now)
            self._close(self._window.last_closed(now), record, entries, flow)

    def _count_in(self, record: StreamRecord, start: int, entries: Overlay, flow: Flow) -> None:
        place = EntryKey(start, key_text(record.key))
        before = entries.get(place)
        total = self._add(record.key, record.value, self._initial() if before is None else from_text(before))
        entries.put(place, None if total is None else json_text.dumps(total))
        flow.forward(self, record._replace(value=self._shown(start, total)))

    def _close(self, last: int, record: StreamRecord, entries: Overlay, flow: Flow) -> None:
        for place, text in list(entries.up_to(last)):
            entries.put(place, None)
            value = self._shown(place.window, from_text(text))
            # if the window cannot be processed, the dead letter has the window, not the record that closed it
            source = record.source._replace(
                timestamp=value["end"] - 1, key=place.key, value=json_text.dumps(value), headers=[]
            )
            flow.forward(self.closed, StreamRecord(from_text(place.key), value, value["end"] - 1, [], source))

    def _shown(self, start: int, value: Any) -> Windowed[Any]:
        return {"start": start, "end": start + self._window.size, "value": value}


class Remember(Operator):
    """The last value of each key of a topic; null removes the value."""

    def __init__(self, store: StoreSpec) -> None:
        super().__init__(f"store {store.name}")
        self.store: StoreSpec = store

    def process(self, record: StreamRecord, flow: Flow) -> None:
        if record.key is None:
            flow.dropped("no_key")
            return
        value = None if record.value is None else json_text.dumps(record.value)
        flow.store(self.store).put(EntryKey(0, key_text(record.key)), value)
        flow.forward(self, record)


class Join(Operator):
    """Joins each record with the table's value for its key at that time."""

    def __init__(self, label: str, table: StoreSpec, joiner: Callable[[Any, Any], Any], *, is_left: bool) -> None:
        super().__init__(label)
        self.store: StoreSpec = table
        self._joiner = joiner
        self._is_left = is_left

    def process(self, record: StreamRecord, flow: Flow) -> None:
        found = None
        if record.key is not None:
            found = flow.store(self.store).get(EntryKey(0, key_text(record.key)))
        if found is None and not self._is_left:
            flow.dropped("no_match")
            return
        other = None if found is None else from_text(found)
        flow.forward(self, record._replace(value=self._joiner(record.value, other)))


class Hook(Operator):
    """Asks the backend; the records of the answer go on in the record's place."""

    def __init__(self, label: str, path: str) -> None:
        super().__init__(label)
        self.path = path

    def process(self, record: StreamRecord, flow: Flow) -> None:
        flow.ask(self, record)


class Sink(Operator):
    """A topic that records are written to."""

    def __init__(self, target: Target) -> None:
        super().__init__(f"to {target.topic}")
        self.target = target

    def process(self, record: StreamRecord, flow: Flow) -> None:
        flow.write(self.target, record)


def _event_time(given: object) -> int:
    """The event time of a record whose topic has `time=`. The check is here, because a wrong time would otherwise fail
    the whole round at the write."""
    if not isinstance(given, int) or given < 0:
        kind = "a negative number" if isinstance(given, int) else type(given).__name__
        raise ValueError(f"`time` gives {kind} for a record; it has to give milliseconds since 1970 as an int")
    return given
