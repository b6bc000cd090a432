"""Audit of what clients write: which batches, what of each record, and one id for what was stored once."""

import json
import uuid
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.compression import Allowance, Codec, compress
from services.gateway.requests.auditing import records
from services.gateway.requests.auditing.clients import AuditedBatch, AuditedTopics, ClientAudit
from services.gateway.requests.auditing.records import audit_events
from services.gateway.requests.memory import Memory
from services.gateway.requests.plan import Sent
from services.gateway.requests.records import produce
from services.gateway.wire.batches import read_batch_header
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ProduceRequest
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.primitives import WireError
from services.gateway.wire.record_marks import read_marks
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records import test_produce
from tests.unit.gateway.wire.records import batch

NOW_MS = 1_700_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
Headers = list[tuple[str, bytes | None]]


def varint(number: int) -> bytes:
    value = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes((value,))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(offset: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    body = b"\x00" + varint(offset) + varint(offset) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name.encode()) + sized(header) for name, header in headers)
    return varint(len(body)) + body


def packed(*rows: tuple[bytes | None, Headers], codec: Codec = Codec.NONE) -> bytes:
    """A batch of records with these keys and headers."""
    body = b"".join(record(number, key, b"a payload", headers) for number, (key, headers) in enumerate(rows))
    return bytes(batch(compress(codec, body), count=len(rows), attributes=codec))


def audited(data: bytes, *, count: int = 1, base_offset: int = 100, failure: str = "") -> AuditedBatch:
    return AuditedBatch("c1", "apples", 2, base_offset, failure, count, data)


def told(*found: AuditedBatch) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in audit_events(list(found), "gateway-1", NOW_MS).written]


@pytest.mark.parametrize("codec", list(Codec))
def test_each_record_is_told_with_its_place_its_key_and_its_ids_and_without_its_payload(codec: Codec) -> None:
    headers: Headers = [
        ("X-Correlation-Id", b"c-1"),
        ("x-traceability-id", b"t-1"),
        ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()),
        ("secret", b"nobody's business"),
    ]
    data = packed((b"alice", headers), (None, []), codec=codec)
    first, second = told(audited(data, count=2))
    assert uuid.UUID(first.pop("id")) != uuid.UUID(second.pop("id"))
    assert first == {
        "serviceId": "gateway-1",
        "auditType": "PRODUCER",
        "topic": "apples",
        "partition": 2,
        "offset": 100,
        "correlationId": "c-1",
        "traceabilityId": "t-1",
        "key": "alice",
        "auditStatus": "SUCCESS",
        "timestamp": NOW_MS,
        "traceId": TRACE,
    }
    assert second == {
        "serviceId": "gateway-1",
        "auditType": "PRODUCER",
        "topic": "apples",
        "partition": 2,
        "offset": 101,
        "auditStatus": "SUCCESS",
        "timestamp": NOW_MS,
    }


def test_the_key_of_an_audit_record_is_the_correlation_id() -> None:
    data = packed((b"alice", [("X-Correlation-Id", b"c-1")]), (b"bob", []))
    assert [key for key, _ in audit_events([audited(data, count=2)], "g", NOW_MS).written] == [b"c-1", None]


def test_what_was_refused_says_why_and_has_no_offset() -> None:
    (event,) = told(audited(packed((b"alice", [])), base_offset=-1, failure="MESSAGE_TOO_LARGE"))
    assert (event["auditStatus"], event["stacktrace"]) == ("FAILURE", "MESSAGE_TOO_LARGE")
    assert "offset" not in event


def test_a_record_that_is_told_of_twice_has_one_id_and_another_one_another() -> None:
    data = packed((b"alice", []))
    (once,), (again,), (next_one,) = (
        told(audited(data)),
        told(audited(data)),
        told(audited(data, base_offset=101)),
    )
    assert once["id"] == again["id"] != next_one["id"]


def test_bytes_that_are_no_text_are_replaced_and_long_ones_cut() -> None:
    (event,) = told(audited(packed((b"\xff" + b"k" * 10_000, [("X-Correlation-Id", b"c" * 1_000)]))))
    assert event["key"] == "\ufffd" + "k" * (records.MOST_KEY_CHARACTERS - 1)
    assert event["correlationId"] == "c" * records.MOST_ID_CHARACTERS


def test_what_nobody_can_open_is_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = bytearray(packed((b"alice", []), (b"bob", [])))
    damaged[-1] ^= 0xFF
    events = audit_events([audited(bytes(damaged), count=2), audited(packed((b"carol", [])))], "g", NOW_MS)
    assert (len(events.written), events.lost) == (1, 2)

    monkeypatch.setattr(records, "MOST_RECORDS", 3)
    many = audited(packed(*[(b"k", [])] * 5), count=5)
    events = audit_events([many, audited(packed((b"alice", [])))], "g", NOW_MS)
    assert (len(events.written), events.lost) == (3, 3)


def test_a_bomb_does_not_go_off() -> None:
    bomb = bytes(batch(bytes(cramjam.zstd.compress(bytes(50_000_000))), count=1, attributes=Codec.ZSTD))
    with pytest.raises(WireError, match=r"write whole buffer|more comes out"):
        list(read_marks(bomb, read_batch_header(bomb, 0, len(bomb)), Allowance(1_000_000)))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_records_raise_nothing_but_wire_errors(body: bytes) -> None:
    data = batch(body, count=3)
    try:
        list(read_marks(data, read_batch_header(data, 0, len(data)), Allowance(1_000)))
    except WireError as error:
        assert str(error)


# --- which batches -----------------------------------------------------------------------------------------------


def test_names_and_stars_choose_topics() -> None:
    topics = AuditedTopics(["orders", "pay*", "*.eu", "a.b"])
    assert all(topic in topics for topic in ("orders", "payments", "pay", "shop.eu", "a.b"))
    assert not any(topic in topics for topic in ("orders2", "my-orders", "repay", "shop.eu.x", "axb"))


class Audit:
    """A gateway that audits apples."""

    def __init__(self) -> None:
        self.taken: list[AuditedBatch] = []
        memory = Memory(audit=ClientAudit(AuditedTopics(["apples"]), self.taken.extend))
        self.world = World({"c1": ["apples", "bananas"]}, partitions=2, memory=memory)

    def produce(self, *places: tuple[str, int, bytes], acks: int = -1) -> Playbook:
        topics = [TopicProduceData(topic, partition_data=[PartitionProduceData(p, data)]) for topic, p, data in places]
        message = ProduceRequest(None, acks, 30_000, topics)
        return Playbook(produce.handle, message, test_produce.VERSION, self.world.view())


def test_only_batches_of_audited_topics_are_taken_with_what_became_of_them() -> None:
    audit = Audit()
    data = packed((b"alice", []), (b"bob", []))
    book = audit.produce(("apples", 1, data), ("bananas", 0, data))
    assert audit.taken == []
    book.answered(test_produce.raw(("apples", 1, 0), ("bananas", 0, 0)))
    assert audit.taken == [AuditedBatch("c1", "apples", 1, 101, "", 2, data)]


def test_a_refused_batch_is_taken_with_the_reason() -> None:
    audit = Audit()
    data = packed((b"alice", []))
    audit.produce(("apples", 0, data)).answered(test_produce.raw(("apples", 0, ErrorCode.MESSAGE_TOO_LARGE)))
    assert [(one.failure, one.base_offset) for one in audit.taken] == [("MESSAGE_TOO_LARGE", -1)]


def test_without_acks_nobody_knows_and_nothing_is_taken() -> None:
    audit = Audit()
    audit.produce(("apples", 0, packed((b"alice", []))), acks=0).answered(Sent())
    assert audit.taken == []
