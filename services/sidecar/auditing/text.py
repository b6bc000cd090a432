"""Audit records as JSON text, with the original's names in the original's order."""

import orjson

from services.sidecar.auditing.events import AuditRecord

Entry = tuple[str | None, bytes]
"""The key and the text of one audit record, as a target writes them. A log file has no keys."""


class AuditText:
    """How the records of one service look."""

    def __init__(self, service_id: str) -> None:
        self._service_id = service_id

    def message(self, record: AuditRecord) -> Entry:
        """As in a topic: the correlation id as key, and a value without nulls."""
        correlation, shown = self._shown(record)
        return correlation or None, orjson.dumps(shown)

    def line(self, record: AuditRecord) -> Entry:
        """As in a log file, with nulls."""
        return None, orjson.dumps(_NULLS | self.shown(record), option=orjson.OPT_APPEND_NEWLINE)

    def shown(self, record: AuditRecord) -> dict[str, object]:
        """The members that have a value. `traceId` is ours, and comes last."""
        return self._shown(record)[1]

    def _shown(self, record: AuditRecord) -> tuple[str | None, dict[str, object]]:
        """With the correlation id. One `if` for each member: to filter them afterwards would take twice as long."""
        id_, type_, topic, partition, offset, ids, key, status, stacktrace, timestamp = record
        correlation, traceability, trace = ids
        shown: dict[str, object] = {
            "id": id_,
            "serviceId": self._service_id,
            "auditType": type_._value_,
            "topic": topic,
        }
        if partition is not None:
            shown["partition"] = partition
        if offset is not None:
            shown["offset"] = offset
        if correlation is not None:
            shown["correlationId"] = correlation = _text(correlation)
        if traceability is not None:
            shown["traceabilityId"] = _text(traceability)
        if key is not None:
            shown["key"] = _text(key)
        shown["auditStatus"] = status._value_
        if stacktrace is not None:
            shown["stacktrace"] = _text(stacktrace)
        shown["timestamp"] = timestamp
        if trace is not None:
            shown["traceId"] = _text(trace)
        return correlation, shown


_NULLS = dict.fromkeys(
    (
        "id", "serviceId", "auditType", "topic", "partition", "offset", "correlationId", "traceabilityId", "key",
        "auditStatus", "stacktrace", "timestamp",
    )
)  # fmt: skip
"""The original's members, in its order."""


def _text(given: bytes | str) -> str:
    """The text as valid UTF-8: bytes that are no UTF-8, and halves of surrogate pairs, are replaced."""
    if isinstance(given, bytes):
        return given.decode("utf-8", "replace")
    return given if given.isascii() else given.encode(errors="replace").decode()
