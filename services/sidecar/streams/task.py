"""One partition of a part of a topology: records in, and gathered what they lead to. No I/O.

A round
1. `process` takes record after record. One that raises leaves no trace, and is named.
2. Records that the backend has to see are gathered: `asked` gives them hook by hook, first those that others may
   depend on; `answered` takes for one of them what goes on in its place. So a hook sees many records at once.
3. `written` and the changes of `stores` are what the round's transaction has to write.
4. `end` forgets the round: it is committed, and its changes are entries; or it is not, and never was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from services.sidecar.producing.records import Outgoing
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
        """`entries`: what is in its stores, by their names. `encode`: how records are written, as bytes."""
        self._part = part
        self._encode = encode
        self.stores = {name: Overlay(one, max_value_bytes) for name, one in entries.items()}
        self.written: list[Written] = []
        self.drops: Counter[str] = Counter()
        """Records that ended within the topology, by reason."""
        self._asking: dict[Hook, list[StreamRecord]] = {hook: [] for hook in part.hooks}
        self._at: Operator | None = None

    def process(self, topic: str, record: StreamRecord) -> None:
        """A record of a topic. OperatorError when the topology's code raises."""
        self._as_a_whole(self._part.sources[topic], [record], record)

    def asked(self) -> tuple[Hook, list[StreamRecord]] | None:
        """The next hook that has to be asked, and with what; None when the backend has seen all."""
        for hook, records in self._asking.items():
            if records:
                self._asking[hook] = []
                return hook, records
        return None

    def answered(self, hook: Hook, record: StreamRecord, answers: Sequence[tuple[Any, Any]]) -> None:
        """What the backend wants to go on in a record's place. OperatorError when the topology's code raises."""
        for_next = [record._replace(key=key, value=value) for key, value in answers]
        self._as_a_whole(None, for_next, record, after=hook)

    def end(self) -> None:
        """The round is over."""
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
        """All that these lead to; or, when something raises, nothing."""
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
