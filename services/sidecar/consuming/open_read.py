"""The state of one open read: its size and its deadline."""

import time
from dataclasses import dataclass, field

from services.sidecar.consuming.held_records import Unacknowledged
from services.sidecar.consuming.instance_values import InstanceOptions, ReadRequest
from services.sidecar.formats import Format
from services.sidecar.records import Consumed


@dataclass(slots=True)
class OpenRead:
    """A read of the backend, or one batch of a stream."""

    max_records: int
    max_bytes: int
    min_bytes: int
    """The read answers with at least so many bytes; 0 or less: with the first record."""
    patience: float
    """Seconds that it waits for records."""
    join_patience: float
    """Seconds that the read waits for the join of the group; a join may take longer than records."""
    format: Format | None = None
    as_events: bool = False
    unacknowledged: Unacknowledged | None = None
    """The stream's store of unacknowledged records; None for a read, whose records the backend commits."""
    started: float = field(default_factory=time.monotonic)
    is_given_up: bool = False
    """Whether the caller has gone: the read must then take no records."""
    answer: list[Consumed] | None = None

    @classmethod
    def of(cls, request: ReadRequest, options: InstanceOptions, max_records: int) -> "OpenRead":
        """The read of a request. A request can only shorten the limits of its instance."""
        patience = options.read_timeout if request.timeout is None else min(request.timeout, options.read_timeout)
        return cls(
            max_records=max_records,
            max_bytes=request.max_bytes,
            min_bytes=min(options.min_bytes, request.max_bytes),
            patience=patience,
            join_patience=max(patience, request.timeout or 0),
            format=request.format,
            as_events=request.as_events,
        )

    @property
    def room(self) -> int:
        """How many records it can take now."""
        return self.max_records if self.unacknowledged is None else min(self.max_records, self.unacknowledged.room)

    def ends_at(self, assigned_at: float | None) -> float:
        """Until when it waits, on the monotonic clock."""
        joined_by = self.started + self.join_patience
        if assigned_at is None:
            return joined_by
        return min(joined_by, max(assigned_at, self.started) + self.patience)

    def is_satisfied_by(self, records: int, size: int) -> bool:
        """Whether the held records are enough for an answer."""
        return records >= self.room or (size >= self.min_bytes if self.min_bytes > 0 else records > 0)
