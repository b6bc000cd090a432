"""Audit records as JSON text, with the original's names in the original's order."""

import orjson

from services.sidecar.auditing.events import AuditRecord, Text


class AuditText:
    """How the records of one service look."""

    def __init__(self, service_id: str) -> None:
        self._service_id = service_id

    def without_nulls(self, record: AuditRecord) -> bytes:
        """As in a topic."""
        return orjson.dumps(self.shown(record))

    def with_nulls(self, record: AuditRecord) -> bytes:
        """As in a log file: a line."""
        return orjson.dumps(self.members(record), option=orjson.OPT_APPEND_NEWLINE)

    def shown(self, record: AuditRecord) -> dict[str, object]:
        """The members that have a value."""
        return {name: value for name, value in self.members(record).items() if value is not None}

    def members(self, record: AuditRecord) -> dict[str, object]:
        """All of them. `traceId` is ours, and there only if there is one."""
        id_, type_, topic, partition, offset, ids, key, status, stacktrace, timestamp = record
        shown: dict[str, object] = {
            "id": id_,
            "serviceId": self._service_id,
            "auditType": type_._value_,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "correlationId": _text(ids.correlation),
            "traceabilityId": _text(ids.traceability),
            "key": _text(key),
            "auditStatus": status._value_,
            "stacktrace": _text(stacktrace),
            "timestamp": timestamp,
        }
        if ids.trace is not None:
            shown["traceId"] = _text(ids.trace)
        return shown


def correlation_key(record: AuditRecord) -> bytes | None:
    """What the records of a topic are partitioned by."""
    text = _text(record.ids.correlation)
    return text.encode() if text else None


def _text(given: Text) -> str | None:
    """Whatever it is made of: bytes that are no UTF-8, and halves of surrogate pairs, are replaced."""
    if isinstance(given, str):
        return given if given.isascii() else given.encode(errors="replace").decode()
    return None if given is None else given.decode(errors="replace")
