"""Turns records into the backend's form, and gives verdicts to records without such a form."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from services.sidecar.delivering.batch import Deliverable
from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Consumed, Outcome, RawRecord, Reason, Verdict

MAX_WAITING = 8
"""Batches that are shown on threads at a time, and may wait for the schema registry there."""


class RecordShower:
    """Shows records in the formats of one consumer."""

    def __init__(self, key_format: Format, value_format: Format, reader: RecordReader) -> None:
        self._key_format = key_format
        self._value_format = value_format
        self._reader = reader
        formats = (key_format, value_format)
        self.may_wait = any(one.kind is not None or one is Format.AUTO for one in formats)
        """Whether a schema may have to be asked for, so that this is no work for an event loop."""
        self._threads = ThreadPoolExecutor(MAX_WAITING, "records")

    async def shown_aside(self, records: Sequence[RawRecord]) -> list[Deliverable | Verdict]:
        """Like `shown`, on a thread: a wait for the registry must not block other work."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.shown, records)

    def shown(self, records: Iterable[RawRecord]) -> list[Deliverable | Verdict]:
        """One result for each record, in their order; a verdict for a record that does not fit its format.

        RegistryUnavailableError if the registry is needed and away.
        """
        return [self._shown(record) for record in records]

    def _shown(self, record: RawRecord) -> Deliverable | Verdict:
        topic, partition, offset, timestamp, key, value, headers = record
        part = "key"
        try:
            shown_key, key_label = self._reader.shown(self._key_format, "key", key, headers)
            part = "value"
            shown_value, value_label = self._reader.shown(self._value_format, "value", value, headers)
        except FormatError as error:
            return unreadable(record, f"{part} is {error}")
        size = len(key or b"") + len(value or b"")
        shown = (shown_key, shown_value, headers, size, key_label, value_label)
        return Deliverable(record, Consumed(topic, partition, offset, timestamp, *shown))


def unreadable(record: RawRecord, why: str) -> Verdict:
    """A dead letter that the backend was never asked about."""
    return Verdict(
        record,
        Outcome.DEAD_LETTER,
        Reason.DESERIALIZATION,
        stacktrace=f"{record.topic}-{record.partition} offset {record.offset} does not fit its format: its {why}",
        attempts=0,
        first_failure=time.time_ns() // 1_000_000,
    )
