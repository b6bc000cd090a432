"""A read_committed reader polls through another gateway, after every single call of the gateway that commits."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mesh.routing import ExactName, ForwardingRule, Subject
from mesh.transactions import LogPlace
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.plan import Call, Command, Handle
from services.gateway.requests.records import fetch, list_offsets
from services.gateway.requests.transactions import end
from services.gateway.requests.transactions.sight import BLIND_S, RETRY_S
from services.gateway.requests.transactions.sweep import UNDONE_S, Undone, sweep
from services.gateway.wire.batches import batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import FetchRequest, ListOffsetsRequest
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic, PartitionData
from services.gateway.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from services.gateway.wire.schema import Struct
from tests.unit.gateway.requests.records.fetching import answer_of, asked
from tests.unit.gateway.requests.transactions.client import FIRST, Client
from tests.unit.gateway.requests.transactions.simulated import Simulation
from tests.unit.gateway.requests.transactions.test_atomic_transactions import (
    BOTH,
    LAST_CALL,
    begun,
    ending,
    written,
)

VERSION = 12
SEVERAL = [("apples", "bananas"), ("bananas", "cherries"), ("apples", "bananas", "cherries")]


@dataclass(slots=True)
class Reader:
    """A consumer of all topics, through a gateway of its own."""

    mesh: Simulation
    memory: Memory = field(default_factory=Memory)
    session: Session = field(default_factory=Session)
    positions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("apples", "bananas", "cherries"), 0))
    seen: dict[str, list[str]] = field(default_factory=dict)
    stable: dict[str, int] = field(default_factory=dict)
    """The last stable offsets in the last answer."""
    asked: list[Call] = field(default_factory=list)
    """The calls of the last poll."""
    waits_s: float = 0.0
    """How long each broker keeps a poll until records come."""

    def poll(self) -> None:
        topics = [
            FetchTopic(topic, partitions=[FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)])
            for topic, offset in self.positions.items()
        ]
        message = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, isolation_level=1, topics=topics)
        answer = answer_of(self._ask(fetch.handle, message, VERSION), VERSION)
        for topic in answer.responses:
            self._take(topic.topic, topic.partitions[0])

    def end(self, topic: str) -> int:
        """As ListOffsets tells it."""
        message = ListOffsetsRequest(-1, 1, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])])
        answer = self._ask(list_offsets.handle, message, 5)
        return int(answer.topics[0].partitions[0].offset)

    def _ask(self, handle: Handle, message: Struct, version: int) -> Any:
        mesh = self.mesh
        world, before = mesh.world, (mesh.world.memory, mesh.world.session, mesh.calls, mesh.dies_after, mesh.on_call)
        world.memory, world.session, mesh.dies_after = self.memory, self.session, 1 << 30
        self.asked = []
        mesh.on_call = self._called
        try:
            return mesh.ask(handle, message, version)
        finally:
            world.memory, world.session, mesh.calls, mesh.dies_after, mesh.on_call = before

    def _called(self, call: Call) -> None:
        self.asked.append(call)
        self.mesh.world.now += self.waits_s if call.raw else 0.0

    def _take(self, topic: str, part: PartitionData) -> None:
        assert part.error_code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # its cluster is away
        self.stable[topic] = part.last_stable_offset
        records = bytes(part.records or b"")
        ended = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
        aborting: set[int] = set()
        for batch in batches(records, 0, len(records)):
            while ended and ended[0][0] <= batch.base_offset:
                aborting.add(ended.pop(0)[1])
            if batch.is_control:
                aborting.discard(batch.producer_id)
            elif batch.producer_id not in aborting:
                self.seen.setdefault(topic, []).append(records[batch.end - 8 : batch.end].decode().strip())
            self.positions[topic] = batch.base_offset + 1


def torn(reader: Reader, topics: tuple[str, ...], value: str) -> bool:
    """Whether the reader has seen some of the transaction's records, and others not."""
    return 0 < sum(value in reader.seen.get(topic, []) for topic in topics) < len(topics)


@BOTH
@pytest.mark.parametrize("topics", SEVERAL)
@pytest.mark.parametrize("held", [True, False])
def test_a_transaction_is_seen_on_all_clusters_or_on_none_whenever_its_gateway_dies(
    protocol: int, topics: tuple[str, ...], held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the hold it is torn for some readers: the test can find that."""
    if not held:
        monkeypatch.setattr(fetch, "concerns", lambda *_: False)
    found: set[bool] = set()
    for calls in range(LAST_CALL):
        mesh, client = begun(protocol)
        assert client.transact(**dict.fromkeys(topics, b"before")) == 0
        written(client, topics, "never")
        assert client.end(commit=False) == 0
        mesh.world.time_ms += 10
        written(client, topics, "value")
        reader = Reader(mesh)

        def look(_: object, reader: Reader = reader) -> None:
            reader.poll()
            found.add(torn(reader, topics, "value"))

        mesh.calls, mesh.dies_after, mesh.on_call = 0, calls, look
        mesh.ask(*ending(client))
        mesh.restart()
        undone: Undone = {}
        for _ in range(3):
            undone = mesh.play(sweep(undone, mesh.view()))
            mesh.world.now += UNDONE_S
        reader.poll()
        reader.poll()
        look(None)
        assert {tuple(values) for values in reader.seen.values()} in ({("before",)}, {("before", "value")})
    assert found == ({False} if held else {False, True})


def half_committed(protocol: int, *topics: str) -> tuple[Simulation, Client, Reader]:
    """Home has committed, c2 not; its gateway is dead. The reader has read what was before."""
    for calls in range(LAST_CALL):
        mesh, client = begun(protocol)
        assert client.transact(**dict.fromkeys(topics, b"before")) == 0
        mesh.world.time_ms += 10
        written(client, topics, "value")
        reader = Reader(mesh)
        reader.poll()
        mesh.calls, mesh.dies_after = 0, calls
        mesh.ask(*ending(client))
        mesh.restart()
        if mesh.clusters["c1"].stable("apples") == 4 and mesh.clusters["c2"].stable("bananas") == 2:
            return mesh, client, reader
    raise AssertionError("it never did")


@BOTH
def test_the_last_stable_offset_and_the_end_stay_where_they_were_until_all_have_committed(protocol: int) -> None:
    _mesh, client, reader = half_committed(protocol, "apples", "bananas")
    for _ in range(3):
        reader.poll()
        assert reader.stable["apples"] == 2
        assert reader.end("apples") == 2
    assert reader.seen == {"apples": ["before"], "bananas": ["before"]}
    assert client.end() == 0
    reader.poll()
    reader.poll()
    assert reader.seen == {"apples": ["before", "value"], "bananas": ["before", "value"]}
    assert reader.end("apples") == 4


def test_a_partition_that_waits_is_not_asked_for_and_others_are() -> None:
    mesh, _client, reader = half_committed(FIRST, "apples", "bananas")
    reader.poll()
    reader.poll()
    topics = {topic.topic for call in reader.asked if call.raw for topic in asked(call).topics}
    assert topics == {"cherries"}
    other = Client(mesh, transactional_id="other")
    assert other.begin() == 0
    assert other.transact(cherries=b"other") == 0
    reader.poll()
    assert reader.seen["cherries"] == ["other"]
    assert reader.seen["apples"] == ["before"]


def test_a_reader_that_lags_gets_the_transactions_before_the_one_that_waits() -> None:
    mesh, _client, _ = half_committed(FIRST, "apples", "bananas")
    late = Reader(mesh)
    late.poll()
    assert late.seen == {"apples": ["before"], "bananas": ["before"]}
    assert late.stable["apples"] == 2


def test_an_answer_without_records_of_transactions_needs_no_log() -> None:
    mesh, client = begun()
    assert client.transact(apples=b"before", bananas=b"before") == 0
    reader = Reader(mesh)
    reader.poll()
    assert "c1" in {call.cluster for call in reader.asked if not call.raw}, "the log was read"
    reader.poll()
    assert all(call.raw for call in reader.asked)


def test_a_decision_of_an_older_gateway_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Generator[Command, Any, dict[LogPlace, int]]:
        yield from ()
        return {}

    monkeypatch.setattr(end, "stable_offsets", none)
    _mesh, _client, reader = half_committed(FIRST, "apples", "bananas")
    reader.poll()
    assert reader.seen["apples"] == ["before", "value"]


@BOTH
def test_while_home_is_away_others_see_no_transactions_for_a_while_and_then_all_that_is_not_known_to_wait(
    protocol: int,
) -> None:
    mesh, _client, reader = half_committed(protocol, "apples", "bananas")
    reader.poll()
    mesh.clusters["c1"].away = True
    other = Client(mesh, protocol, "other")
    mesh.world.add_rule(ForwardingRule("t", ExactName("other", Subject.TRANSACTIONAL_ID), "c3"))
    assert other.begin() == 0
    assert other.transact(cherries=b"other") == 0
    for _ in range(3):
        reader.poll()
        assert "cherries" not in reader.seen, "a decision that nobody knows of may be about it"
        mesh.world.now += RETRY_S
    mesh.world.now += BLIND_S
    reader.poll()
    assert reader.seen["cherries"] == ["other"]
    assert reader.seen["apples"] == ["before"]


@BOTH
def test_a_home_is_away_since_its_log_was_asked_for_and_not_since_a_long_poll_began(protocol: int) -> None:
    mesh, _client, reader = half_committed(protocol, "apples", "bananas")
    mesh.clusters["c1"].away = True
    other = Client(mesh, protocol, "other")
    mesh.world.add_rule(ForwardingRule("t", ExactName("other", Subject.TRANSACTIONAL_ID), "c3"))
    assert other.begin() == 0
    assert other.transact(cherries=b"other") == 0
    reader.waits_s = BLIND_S
    reader.poll()
    reader.waits_s = 0.0
    mesh.world.now += RETRY_S
    reader.poll()
    assert "cherries" not in reader.seen, "a decision that nobody knows of may be about it"


def test_a_part_that_is_known_to_be_decided_is_finished_while_home_is_away() -> None:
    mesh, _client, reader = half_committed(FIRST, "apples", "bananas")
    reader.poll()
    mesh.clusters["c1"].away = True
    mesh.world.clusters["c1"].down = "away"
    mesh.world.memory = reader.memory
    undone: Undone = {}
    for _ in range(3):
        undone = mesh.play(sweep(undone, mesh.view()))
        mesh.world.now += UNDONE_S
    mesh.world.memory = Memory()
    mesh.world.now += BLIND_S
    reader.poll()
    reader.poll()
    assert reader.seen["bananas"] == ["before", "value"]


def test_one_that_waits_for_long_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    mesh, client, reader = half_committed(FIRST, "apples", "bananas")
    for _ in range(10):
        reader.poll()
        mesh.world.now += 1.0
    assert capsys.readouterr().out.count("readers wait for a transaction") == 1
    assert reader.memory.sight.longest_held(mesh.world.now) >= 5.0
    assert client.end() == 0
    mesh.world.memory = reader.memory
    mesh.play(sweep({}, mesh.view()))
    assert reader.memory.sight.longest_held(mesh.world.now) == 0, "though the reader does not come back"
