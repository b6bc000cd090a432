"""One partition of a part of a topology: takes records, and gathers their results. No I/O.

A round
1. `process` takes record after record. A record that raises leaves no trace, and the error names it.
2. Records for the backend are gathered. `asked` gives them hook by hook, first the hooks that others depend on, so that
   a hook gets many records at once. `answered` takes the records that go on in the place of one of them.
3. The round's transaction has to write `written` and the changes of `stores`.
4. `end` forgets the round. If it was committed, its changes are entries by then; if not, it leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from services.sidecar.records import Outgoing
from services.sidecar.streams.operators import Hook, Operator
from services.sidecar.streams.plan import Part
from services.sidecar.streams.records import OperatorError, StoreSpec, StreamRecord, Target, Written
from services.sidecar.streams.state import Entries, Overlay

Encode = Callable[[Target, StreamRecord], Outgoing]


class Task:
    """Runs one partition of `part`."""

    def __init__(
        self,
        part: Part,
        entries: Mapping[str, Entries],
        encode: Encode | None = None,
        max_value_bytes: int | None = None,
    ) -> None:
        """`entries`: the entries of the task's stores, by their names. `encode` makes bytes of the records to write."""
        self._part = part
        self._encode = encode
        self.stores = {name: Overlay(one, max_value_bytes) for name, one in entries.items()}
        self.written: list[Written] = []
        self.drops: Counter[str] = Counter()
        """The number of records that ended within the topology, by reason."""
        self._asking: dict[Hook, list[StreamRecord]] = {hook: [] for hook in part.hooks}
        self._at: Operator | None = None

    def process(self, topic: str, record: StreamRecord) -> None:
        """Processes a record of a topic. OperatorError when the topology's code raises."""
        self._as_a_whole(self._part.sources[topic], [record], record)

    def asked(self) -> tuple[Hook, list[StreamRecord]] | None:
        """The next hook with its records for the backend; None when the backend has seen all records."""
        for hook, records in self._asking.items():
            if records:
                self._asking[hook] = []
                return hook, records
        return None

    def answered(self, hook: Hook, record: StreamRecord, answers: Sequence[tuple[Any, Any]]) -> None:
        """Passes on the backend's answers in a record's place. OperatorError when the topology's code raises."""
        for_next = [record._replace(key=key, value=value) for key, value in answers]
        self._as_a_whole(None, for_next, record, after=hook)

    def end(self) -> None:
        """Forgets the round."""
        for store in self.stores.values():
            store.forget()
        self.written = []
        self.drops.clear()
        for hook in self._asking:
            self._asking[hook] = []

    # the flow that operators see

    def forward(self, operator: Operator, record: StreamRecord) -> None:
        for following in operator.following:
            self._at = following
            following.process(record, self)
        self._at = operator

    def write(self, target: Target, record: StreamRecord) -> None:
        self.written.append(Written(target, record, self._encode(target, record) if self._encode else None))

    def ask(self, hook: Hook, record: StreamRecord) -> None:
        self._asking[hook].append(record)

    def store(self, spec: StoreSpec) -> Overlay:
        return self.stores[spec.name]

    def dropped(self, reason: str) -> None:
        self.drops[reason] += 1

    def _as_a_whole(
        self, first: Operator | None, records: Iterable[StreamRecord], cause: StreamRecord, after: Hook | None = None
    ) -> None:
        """Takes over all results of these records, or none of them if the topology's code raises."""
        written, drops = len(self.written), self.drops.copy()
        asking = {hook: len(waiting) for hook, waiting in self._asking.items()}
        self._at = first or after
        try:
            for record in records:
                if first is not None:
                    first.process(record, self)
                elif after is not None:
                    self.forward(after, record)
        except Exception as error:
            for store in self.stores.values():
                store.undo()
            del self.written[written:]
            self.drops = drops
            for hook, count in asking.items():
                del self._asking[hook][count:]
            raise OperatorError(self._at.label if self._at else "", cause, error) from error
        for store in self.stores.values():
            store.keep()
