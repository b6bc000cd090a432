"""A dead letter as it is written: the original's bytes, its headers, and where it came from.

Ids and the stack trace have the names that the original sidecar gives them; `dlq.*` is ours.
"""

from services.sidecar.delivering.records import ReplyRecord, Verdict
from services.sidecar.producing.records import CORRELATION_HEADER, TRACEABILITY_HEADER, Headers, Outgoing

STACK_TRACE_HEADER = "StackTrace"
ORIGIN_HEADERS = (
    "dlq.topic", "dlq.partition", "dlq.offset", "dlq.timestamp", "dlq.group", "dlq.reason", "dlq.attempts",
    "dlq.first.failure",
)  # fmt: skip
MAX_STACK_TRACE_BYTES = 16 * 1024
"""What is kept of a stack trace: a dead letter must not be refused for its size."""


def dead_letter_topic(topic: str, extension: str) -> str:
    """A dead letter that fails again stays where it is."""
    return topic if topic.endswith(extension) else topic + extension


def dead_letter(verdict: Verdict, group: str, extension: str) -> ReplyRecord:
    """Partitioned by its key, like all of that topic. A dead letter that fails again keeps its first origin."""
    record = verdict.record
    own = [(name, value) for name, value in record.headers if name not in _REPLACED]
    origin = {name: value for name, value in record.headers if name in ORIGIN_HEADERS}
    facts = {
        "dlq.topic": origin.get("dlq.topic") or record.topic.encode(),
        "dlq.partition": origin.get("dlq.partition") or b"%d" % record.partition,
        "dlq.offset": origin.get("dlq.offset") or b"%d" % record.offset,
        "dlq.timestamp": origin.get("dlq.timestamp") or b"%d" % record.timestamp,
        "dlq.group": group.encode(),
        "dlq.reason": (verdict.reason.value if verdict.reason else "").encode(),
        "dlq.attempts": b"%d" % verdict.attempts,
        "dlq.first.failure": origin.get("dlq.first.failure") or b"%d" % verdict.first_failure,
    }
    ids: Headers = [
        (name, value.encode())
        for name, value in (
            (CORRELATION_HEADER, verdict.correlation_id),
            (TRACEABILITY_HEADER, verdict.traceability_id),
        )
        if value
    ]
    trace: Headers = []
    if verdict.stacktrace:
        trace = [(STACK_TRACE_HEADER, verdict.stacktrace.encode(errors="replace")[:MAX_STACK_TRACE_BYTES])]
    given = {name for name, _ in ids}
    headers: Headers = [*ids, *trace, *((name, value) for name, value in own if name not in given), *facts.items()]
    return ReplyRecord(
        dead_letter_topic(record.topic, extension),
        Outgoing(record.key, record.value, None, max(record.timestamp, 0), headers),
    )


_REPLACED = frozenset({*ORIGIN_HEADERS, STACK_TRACE_HEADER})
