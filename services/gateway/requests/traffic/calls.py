"""Traffic of clients: each call is counted once it has its answer, by client, topic and cluster.

Theory of operation
1. Produce, Fetch and ShareFetch are calls about their topics. Their handlers count them, because they know where the
   records are. Each topic counts as one call, on the cluster and by the rule of the table that the request followed. A
   refused call is an error and moved no records: the client sends it again. All other calls are counted by `watched`,
   which sees the calls of a plan: one call of each cluster that was asked, about no topic.
2. Records are counted by the headers of their batches, which are not opened.
3. A call takes from its start to its answer: the wait of a Fetch for records is a part of it.
4. Receipts of a Fetch or ShareFetch (`receipts`) are taken when it is counted, from the same headers.
5. If no traffic is reported, `Memory.traffic` is None, and nothing of this runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from mesh.traffic.counting import Key, bounded
from mesh.traffic.receipts import Reading, Sent
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Answer, Ask, Close, Gather, MeshView, Plan, Request
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.requests.traffic.receipts import ClientReceipts, add
from services.gateway.requests.traffic.tally import Tally
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.batches import Span, count_records, span_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from services.gateway.requests.groups.share_sessions import Slot as ShareSlot
    from services.gateway.requests.knowledge import TopicKnowledge
    from services.gateway.requests.records.broker_fetches import Found
    from services.gateway.requests.records.fetch_routes import Route as FetchRoute
    from services.gateway.requests.records.fetch_sessions import Slot
    from services.gateway.requests.records.produce_order import Producing
    from services.gateway.requests.records.produce_routes import Route as ProduceRoute
    from services.gateway.wire.messages.share_fetch import PartitionData
    from services.gateway.wire.scanner import ProduceScan

TAKEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Codes of a batch that is stored; the second means that the producer had no answer before."""

_name_of = cache(api_name)
"""Called only for served APIs."""


class CountedCall:
    """A call in progress."""

    __slots__ = ("_api", "_began", "_client", "_mesh", "_principal", "_traffic")

    def __init__(self, traffic: ClientTraffic, request: Request, mesh: MeshView) -> None:
        self._traffic = traffic
        self._mesh = mesh
        self._client = bounded(request.header.client_id or "")
        self._principal = mesh.session.shown_principal
        self._api = _name_of(request.header.api_key)
        self._began = traffic.clock()

    def since(self, began: float) -> None:
        """Sets an earlier start."""
        self._began = began

    def about(self, topic: str, records: int, size: int, errors: int) -> None:
        """Counts records of one topic that the call has moved; `errors` is 1 if a part of the call has failed."""
        route = self._mesh.table.route(topic)
        if route is None:
            who = (self._client, self._principal, bounded(topic), "", "", self._api)
        else:
            who = (self._client, self._principal, topic, f"rules/{route.rule.rule_id}", route.cluster, self._api)
        traffic = self._traffic
        traffic.counts.count(who, (traffic.clock() - self._began) * 1000, records, size, errors)

    def about_none(self, cluster: str, errors: int) -> None:
        """Counts a call that was about no topic, or brought no records; `cluster` was asked, if any was."""
        traffic = self._traffic
        who = (self._client, self._principal, "", "", cluster, self._api)
        traffic.counts.count(who, (traffic.clock() - self._began) * 1000, 0, 0, errors)

    # --- calls that move records ---------------------------------------------------------------------------------

    def produced(self, produce: "Producing", answer: Answer) -> None:
        """Counts each topic of a Produce."""
        frame, closed = produce.request.frame, isinstance(answer, Close)
        results = produce.results if isinstance(answer, ProduceResponse) else {}
        for topic in produce.scan.topics:
            records = size = errors = 0
            for part in topic.partitions:
                result = results.get((topic.name, part.partition)) if results else None
                if closed or (result is not None and result.error_code not in TAKEN):
                    errors = 1
                elif part.records_start >= 0:
                    records += count_records(frame, part.records_start, part.records_end)
                    size += part.records_end - part.records_start
            self.about(topic.name, records, size, errors)
        if produce.strange:
            self.about_none("", 1)

    def fetched(self, found: "Mapping[Slot, Found]", refused: "Mapping[Slot, ErrorCode]") -> None:
        """Counts each topic of which a Fetch has brought records or an error."""
        sums = _Sums()
        for (topic, _), each in found.items():
            if each.part.error_code:
                sums.add(topic, 0, 0, 1)
        for topic, partition, size, span, until in brought_by(found):
            sums.add(topic, span.records, size, 0)
            self._sent(topic, partition, span, until)
        for topic, _ in refused:
            sums.add(topic, 0, 0, 1)
        sums.tell(self)

    def _sent(self, topic: str, partition: int, span: Span, until: int) -> None:
        receipts = self._traffic.receipts
        if receipts is not None and span.first >= 0 and topic in receipts.topics:
            group = receipts.groups.of(self._mesh.session.reader)
            add(receipts.of(self._reading(topic, partition, group)), span, until)

    def _reading(self, topic: str, partition: int, group: str) -> Reading:
        mesh, route = self._mesh, self._mesh.table.route(topic)
        cluster = "" if route is None else route.cluster
        known = None if route is None else mesh.clusters[cluster].topics.get(topic)
        return _reading(mesh.session, self._client, group, topic, partition, cluster, known)

    def shared(self, results: "Mapping[ShareSlot, PartitionData]") -> None:
        """Counts each topic of which a ShareFetch has brought acquired records or an error."""
        sums = _Sums()
        for slot, part in results.items():
            if part.acquired_records or part.error_code:
                records = sum(each.last_offset - each.first_offset + 1 for each in part.acquired_records)
                sums.add(slot.topic, records, len(part.records or b""), int(part.error_code != 0))
        sums.tell(self)

    def acquired(self, results: "Mapping[ShareSlot, PartitionData]", group: str) -> None:
        """Takes the receipts of records that a member of a share group has acquired."""
        receipts = self._traffic.receipts
        for slot, part in results.items():
            if receipts is not None and part.acquired_records and slot.topic in receipts.topics:
                sent = receipts.of(self._reading(slot.topic, slot.partition, group))
                for each in part.acquired_records:
                    sent.add(each.first_offset, each.last_offset + 1)


class Forwarded(Protocol):
    """A Produce that was forwarded without a plan."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def began(self) -> float: ...

    @property
    def scan(self) -> "ProduceScan": ...

    @property
    def routes(self) -> "list[ProduceRoute]": ...


def count_forwarded(traffic: ClientTraffic, session: Session, request: Forwarded, heard: Answer) -> None:
    """Counts a forwarded Produce by each of its topics, if the client's answer is not that of the broker."""
    ms = (traffic.clock() - request.began) * 1000
    for route, (records, size, errors) in zip(request.routes, _taken_of(request, heard), strict=True):
        tally = produce_tally(traffic, session, request.client_id, route)
        tally.add(records, size, errors)
        tally.took(ms)


def produce_tally(traffic: ClientTraffic, session: Session, client_id: str | None, route: "ProduceRoute") -> Tally:
    """That of a client's Produce to a topic. The route keeps it: each forwarded Produce adds to it."""
    tally = route.tally
    if tally is None or tally.ended:
        who, rule = bounded(client_id or ""), f"rules/{route.route.rule.rule_id}"
        key = (who, session.shown_principal, route.name, rule, route.cluster, _name_of(ApiKey.PRODUCE))
        tally = route.tally = traffic.of(key)
    return tally


def _taken_of(request: Forwarded, heard: Answer) -> Iterator[tuple[int, int, int]]:
    """By topic: stored records and bytes, and 1 if other batches were not stored."""
    codes: dict[tuple[str, int], int] = {}
    if isinstance(heard, ProduceResponse):
        codes = {(topic.name, p.index): p.error_code for topic in heard.responses for p in topic.partition_responses}
    for topic, route in zip(request.scan.topics, request.routes, strict=True):
        records = size = errors = 0
        for part in topic.partitions:
            if codes.get((route.name, part.partition)) in TAKEN:
                records += part.records
                size += part.records_end - part.records_start
            else:
                errors = 1
        yield records, size, errors


class ForwardedFetch(Protocol):
    """A Fetch that was forwarded without a plan."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def began(self) -> float: ...

    @property
    def routes(self) -> "Mapping[str, FetchRoute]": ...


class Asking(Protocol):
    """A client that asks again and again."""

    idle: Tally | None
    """That of its Fetches without records, until it has ended."""


Brought = tuple[str, int, int, Span, int]
"""Topic, partition, bytes, batches, and the high watermark: records of one partition in an answer."""


def count_forwarded_fetch(
    traffic: ClientTraffic,
    session: Session,
    fetch: ForwardedFetch,
    brought: Iterable[Brought],
    asking: Asking,
    *,
    is_certain: bool,
) -> None:
    """Counts a forwarded Fetch by the records of its answer.

    Not `is_certain`: the answer may not reach the client's connection as a whole.
    """
    ms, receipts = (traffic.clock() - fetch.began) * 1000, traffic.receipts
    sums: dict[str, list[int]] = {}
    for topic, partition, size, span, until in brought:
        of_topic = sums.setdefault(topic, [0, 0])
        of_topic[0] += span.records
        of_topic[1] += size
        if receipts is not None and span.first >= 0 and topic in receipts.topics:
            add(_sent_to(receipts, session, fetch, topic, partition), span, until, is_certain=is_certain)
    for topic, (records, size) in sums.items():
        route = fetch.routes[topic]
        tally = route.tally
        if tally is None or tally.ended:
            who = _fetch_key(session, fetch.client_id, topic, f"rules/{route.rule_id}", route.cluster)
            tally = route.tally = traffic.of(who)
        tally.add(records, size, 0)
        tally.took(ms)
    if not sums:
        idle = asking.idle
        if idle is None or idle.ended:
            idle = asking.idle = traffic.of(_fetch_key(session, fetch.client_id, "", "", ""))
        idle.add(0, 0, 0)
        idle.took(ms)


def _sent_to(receipts: ClientReceipts, session: Session, fetch: ForwardedFetch, topic: str, partition: int) -> Sent:
    """The offsets that the client was sent in this interval. A route remembers them: each Fetch comes through here."""
    route = fetch.routes[topic]
    interval, sent = route.receipts
    if interval != receipts.receipts.interval:
        sent = {}
        route.receipts = (receipts.receipts.interval, sent)
    found = sent.get(partition)
    if found is None:
        known, group = route.knowledge.topics.get(topic), receipts.groups.of(session.reader)
        reading = _reading(session, bounded(fetch.client_id or ""), group, topic, partition, route.cluster, known)
        found = sent[partition] = receipts.of(reading)
    return found


def _reading(
    session: Session, client: str, group: str, topic: str, partition: int, cluster: str, known: "TopicKnowledge | None"
) -> Reading:
    topic_id = b"" if known is None else known.topic_id
    return Reading(bounded(session.principal), client, bounded(group), topic, partition, cluster, topic_id)


def named_group(mesh: MeshView, group: str) -> None:
    """A client names its group: a member, or whoever commits offsets."""
    mesh.session.uses.groups.note(group)
    traffic = mesh.memory.traffic
    if traffic is not None and traffic.receipts is not None:
        traffic.receipts.groups.note(mesh.session.reader, group, mesh.session.number)


def brought_by(found: "Mapping[Slot, Found]") -> Iterator[Brought]:
    """The records that brokers have brought, by partition."""
    for (topic, partition), each in found.items():
        buffer, part = each.buffer, each.part
        if part.record_bytes and not part.error_code and isinstance(topic, str):
            span = span_of(buffer, part.records_start, part.records_end)
            yield topic, partition, part.record_bytes, span, part.high_watermark


def _fetch_key(session: Session, client_id: str | None, topic: str, rule: str, cluster: str) -> Key:
    return bounded(client_id or ""), session.shown_principal, topic, rule, cluster, _name_of(ApiKey.FETCH)


class _Sums:
    """Sums over the partitions of a call, by topic."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str | bytes, list[int]] = {}

    def add(self, topic: str | bytes, records: int, size: int, errors: int) -> None:
        sums = self._by_topic.get(topic)
        if sums is None:
            self._by_topic[topic] = [records, size, errors]
        else:
            sums[0] += records
            sums[1] += size
            sums[2] |= errors

    def tell(self, call: CountedCall) -> None:
        if not self._by_topic:
            call.about_none("", 0)
        for topic, (records, size, errors) in self._by_topic.items():
            if isinstance(topic, str):
                call.about(topic, records, size, errors)
            else:  # an id without a known name
                call.about_none("", errors)


def begun(request: Request, mesh: MeshView) -> CountedCall | None:
    """A call that begins now, if traffic is counted."""
    traffic = mesh.memory.traffic
    return None if traffic is None else CountedCall(traffic, request, mesh)


def watched(plan: Plan, request: Request, mesh: MeshView) -> Plan:
    """The plan of a call that moves no records, with its call counted."""
    call = begun(request, mesh)
    return plan if call is None else _watched(plan, call)


def _watched(plan: Plan, call: CountedCall) -> Plan:
    clusters: dict[str, None] = {}
    result: Any = None
    try:
        while True:
            try:
                command = plan.send(result)
            except StopIteration as stop:
                answer: Answer = stop.value
                break
            if isinstance(command, (Ask, Gather)):
                for asked in command.calls:
                    clusters[asked.cluster] = None
            result = yield command
    finally:
        plan.close()
    errors = int(isinstance(answer, Close) or bool(getattr(answer, "error_code", 0)))
    for cluster in clusters or ("",):
        call.about_none(cluster, errors)
    return answer
