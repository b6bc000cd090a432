"""A topology without Kafka, for its author's tests: one partition, records in, records out.

driver = TopologyTestDriver(topology)
driver.write("orders", "alice", {"amount": 5})
assert driver.read("totals") == [("alice", {"total": 5})]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from services.sidecar.records import RawRecord
from services.sidecar.streams.plan import Part
from services.sidecar.streams.records import StreamRecord
from services.sidecar.streams.state import EntriesInMemory, EntryKey, from_text, key_text
from services.sidecar.streams.task import Task
from services.sidecar.streams.topology import Topology

Answer = Callable[[Any, Any], Iterable[tuple[Any, Any]]]
"""A backend's answer: the keys and values that go on in the place of a key and a value."""


class TopologyTestDriver:
    """Runs a topology in memory; each record is a round of its own. A function that fails raises OperatorError."""

    def __init__(self, topology: Topology, backend: Answer = lambda key, value: [(key, value)]) -> None:
        """`backend` stands in for the real backend."""
        self._backend = backend
        self._plan = topology.plan("test")
        self._entries = {name: EntriesInMemory() for name in self._plan.stores}
        self._tasks: list[tuple[Part, Task]] = [
            (part, Task(part, {name: self._entries[name] for name in part.stores})) for part in self._plan.parts
        ]
        self._written: dict[str, list[StreamRecord]] = {}
        self._offset = 0

    def write(self, topic: str, key: Any, value: Any, timestamp: int = 0) -> None:
        """Puts a record in, and processes all that follows from it."""
        self._offset += 1
        source = RawRecord(topic, 0, self._offset, timestamp, None, None, [])
        self.process(topic, [StreamRecord(key, value, timestamp, [], source)])

    def process(self, topic: str, records: Iterable[StreamRecord]) -> None:
        """Processes records in one round."""
        for part, task in self._tasks:
            if topic not in part.sources:
                continue
            try:
                for record in records:
                    task.process(topic, record)
                while (asked := task.asked()) is not None:
                    hook, waiting = asked
                    for record in waiting:
                        task.answered(hook, record, list(self._backend(record.key, record.value)))
                for name, store in task.stores.items():
                    self._entries[name].apply(store.changes())
                written = task.written
            finally:
                task.end()
            for target, record, _ in written:
                if target.is_internal:
                    self.process(self._plan.topic_of(target), [record])
                else:
                    self._written.setdefault(target.topic, []).append(record)

    def read(self, topic: str) -> list[tuple[Any, Any]]:
        """Keys and values that were written to a topic since the last `read` of it."""
        return [(record.key, record.value) for record in self._written.pop(topic, [])]

    def stored(self, store: str, key: Any, window: int = 0) -> Any:
        """The value of a key in a store; None if the store has no value."""
        text = self._entries[store].get(EntryKey(window, key_text(key)))
        return None if text is None else from_text(text)
