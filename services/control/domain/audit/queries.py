"""Questions to the table of audit events: the permitted questions, and how far the table is behind the audit topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mesh.rpc import audit
from services.control.domain.errors import InvalidField

IDS = ("correlation_id", "traceability_id", "trace_id")
"""Each of these ids finds the life of a record, however long ago the record was written."""
ENOUGH = (*IDS, "event_id", "topic", "service_id")
"""A request must give one of these fields: each has an index."""
TEXTS = (*IDS, "topic", "key", "service_id", "audit_type", "audit_status")
WITHOUT_IDS = timedelta(hours=24)
"""How far back a query searches if the request gives neither an id nor a time."""
SILENT_AFTER = timedelta(seconds=60)
"""A pipeline reports its progress every ten seconds or so."""
HOW_TO_START = "start `kafka-mesh pipeline serve`, or `kafka-mesh pipeline run audit --continuous`"


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The checked conditions of a query."""

    texts: Mapping[str, str]
    """Column -> the text that the column must hold."""
    event_id: UUID | None
    partition: int | None
    offset: int | None
    since: datetime | None
    until: datetime | None
    refusals_of: str | None = None
    """Only refusals, the newest first; of this principal, or with an empty text of all."""
    topic_prefix: str = ""


def audit_query(request: audit.QueryAuditRequest, now: datetime) -> AuditQuery:
    """The query that a request asks for; InvalidField says what is wrong with the request."""
    if not any(getattr(request, name) for name in ENOUGH):
        raise InvalidField("correlation_id", f"one of {', '.join(ENOUGH)} is needed: all events of a mesh are too many")
    texts = {name: value for name in TEXTS if (value := getattr(request, name))}
    partition = request.partition if request.HasField("partition") else None
    offset = request.offset if request.HasField("offset") else None
    for field, number, needed in (("partition", partition, request.topic), ("offset", offset, partition is not None)):
        if number is None:
            continue
        if number < 0:
            raise InvalidField(field, f"{number} is negative")
        if not needed:
            raise InvalidField(field, "means a place only together with topic and partition")
    since, until = _span(request)
    finds_few = offset is not None or any(getattr(request, name) for name in (*IDS, "event_id"))
    if since is None and not finds_few:
        since = (until or now) - WITHOUT_IDS
    return AuditQuery(texts, _event_id(request.event_id), partition, offset, since, until)


def refusal_query(request: audit.ListRefusalsRequest, now: datetime) -> AuditQuery:
    """The query for refusals; InvalidField says what is wrong with the request."""
    if not request.principal and not request.topic:
        raise InvalidField("principal", "the principal or the topic is needed: all refusals of a mesh are too many")
    if request.principal and not all(request.principal.partition(":")):
        raise InvalidField("principal", f"{request.principal[:255]!r} is no principal; expected User:NAME")
    if request.topic_prefix and (request.topic or not request.principal):
        raise InvalidField("topic_prefix", "stands beside a principal, and in the place of a topic")
    since, until = _span(request)
    texts = {"topic": request.topic} if request.topic else {}
    begin = since or (until or now) - WITHOUT_IDS
    return AuditQuery(texts, None, None, None, begin, until, request.principal, request.topic_prefix)


def _span(request: audit.QueryAuditRequest | audit.ListRefusalsRequest) -> tuple[datetime | None, datetime | None]:
    since = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else None
    until = request.end_time.ToDatetime(UTC) if request.HasField("end_time") else None
    if since is not None and until is not None and since >= until:
        raise InvalidField("end_time", "is not after start_time: no event can be between")
    return since, until


def _event_id(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidField("event_id", f"{text!r} is not a UUID") from None


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far the pipeline is in a partition of an audit topic."""

    next_offset: int
    log_end: int
    complete_until: datetime | None


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The pipeline's report about a cluster."""

    cluster: str
    problem: str
    told: datetime


def freshness(
    partitions: Sequence[PartitionProgress], sources: Sequence[SourceProgress], now: datetime
) -> audit.AuditFreshness:
    """How far the table is behind. `now` is a time of the same clock as `told`."""
    found = audit.AuditFreshness(problem="; ".join(_problems(sources, now)))
    if not sources:
        return found
    told = max(each.told for each in sources)
    found.pipeline_time.FromDatetime(told)
    found.behind_events = sum(max(each.log_end - each.next_offset, 0) for each in partitions)
    times = [each.complete_until for each in partitions]
    complete_until = None if None in times else min(filter(None, times), default=None)
    if complete_until is not None:
        found.complete_until.FromDatetime(complete_until)
        found.behind.FromTimedelta(max(told - complete_until, timedelta()))
    return found


def _problems(sources: Sequence[SourceProgress], now: datetime) -> list[str]:
    if not sources:
        return [f"no pipeline has ever brought audit events here: {HOW_TO_START}"]
    silent = now - max(each.told for each in sources)
    problems = [f"{each.cluster}: {each.problem}" for each in sources if each.problem]
    if silent > SILENT_AFTER:
        seconds = int(silent.total_seconds())
        return [f"no pipeline has been heard of for {seconds} s: {HOW_TO_START}", *problems]
    return problems
