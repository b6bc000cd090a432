"""A large answer that passes while it comes is the same, byte for byte, as one that has come as a whole; answers that
may have to be held back do not pass."""

from typing import Any

import pytest

from services.gateway.counting import Count
from services.gateway.downstream.fetch_in_flight import FetchInFlight, Step
from services.gateway.downstream.fetch_passing import beginning_of, passing
from services.gateway.downstream.fetch_questions import Part, Way
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import RawResponse
from services.gateway.requests.records.broker_fetches import BrokerFetches, Limits, NamedSlot, Terms
from services.gateway.requests.records.fetch_routes import route_to
from services.gateway.requests.records.fetch_sessions import FetchSession, Marks, Position
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import (
    SIZE_BYTES,
    RequestHeader,
    encode_response,
    parse_response_header,
)
from services.gateway.wire.messages import FetchResponse
from services.gateway.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    PartitionData,
)
from services.gateway.wire.primitives import INT32
from services.gateway.wire.scanner import patch_correlation_id
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.wire.records import batch

CLIENTS_ID = 77
SESSION = 5
VERSIONS = (4, 5, 7, 9, 11, 12, 13, 18)
SLOT: NamedSlot = ("apples", 0)
LIMITS = Limits(500, 1, 1000, "")
TRANSACTIONAL = 0x10


class Stage:
    """A forwarded Fetch of one partition, whose broker has been asked."""

    def __init__(self, version: int, *, in_session: bool = False) -> None:
        self.version, self.sent_version = version, min(version, 12)
        world = World({"c1": ["apples", "other"]})
        position = Position(43, 1000)
        session = None
        if in_session:
            session = FetchSession(SESSION, version >= 13, 0.0, {SLOT: position})
            session.epoch = 3
        forwarder: Any = None
        header = RequestHeader(int(ApiKey.FETCH), version, CLIENTS_ID, "test", 0)
        self.fetch = FetchInFlight(forwarder, header, 0, session)
        connection: Any = None
        fetches = BrokerFetches(Terms(self.sent_version, 0))
        self.part = Part(fetches, Way(Place("c1", 1), connection, None, self.sent_version, b"", Count()))
        self.part.wanted[SLOT] = position
        fetches.ask({SLOT: position}, LIMITS, in_session)
        route = route_to("apples", world.table, world.clusters, "mesh-id", world.memory, 0.0)
        assert route is not None
        fetch = self.fetch
        fetch.routes["apples"] = route
        fetch.parts.append(self.part)
        fetch.wanted, fetch.epoch = {SLOT: position}, 3
        fetch.alone = fetch.passes = True
        fetch.limits = fetch.each = LIMITS

    def frame(self, **changes: Any) -> bytearray:
        """The broker's answer."""
        part = PartitionData(0, 0, 50, 50, 3 if self.sent_version >= 5 else -1, records=b"records" * 20)
        part.aborted_transactions = [AbortedTransaction(1, 2), AbortedTransaction(3, 4)]
        message = FetchResponse(5, responses=[FetchableTopicResponse("apples", partitions=[part])])
        for name, value in changes.items():
            setattr(part if hasattr(part, name) else message, name, value)
        return bytearray(encode_response(message, self.sent_version, 3))

    def come(self, frame: bytearray) -> Step:
        view = memoryview(frame)
        header = parse_response_header(view, SIZE_BYTES, len(view), ApiKey.FETCH, self.sent_version)
        return self.fetch.come(self.part, RawResponse(view, header.body_offset, self.sent_version))

    def whole(self, frame: bytearray) -> bytes:
        assert self.come(frame) is Step.ANSWER
        answer = bytearray().join(self.fetch.told())
        patch_correlation_id(answer, SIZE_BYTES, CLIENTS_ID)
        return bytes(answer)

    def passing(self, frame: bytearray, cut: int) -> bytes | None:
        beginning, missing = memoryview(bytearray(frame[:cut])), len(frame) - cut
        found = beginning_of(self.fetch, self.part, beginning, missing)
        if found is None:
            assert beginning == frame[:cut], "whoever gathers it must find it as it was"
            return None
        pieces = passing(self.fetch, self.part, found, beginning, missing)
        return b"".join(pieces) + frame[cut:]


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_it_is_cut(version: int, in_session: bool) -> None:
    if in_session and version < 7:
        return
    frame = Stage(version).frame()
    whole = Stage(version, in_session=in_session).whole(bytearray(frame))
    passed = [Stage(version, in_session=in_session).passing(frame, cut) for cut in range(SIZE_BYTES, len(frame))]
    records_at = bytes(frame).index(b"records")
    assert passed[records_at - SIZE_BYTES :] == [whole] * (len(frame) - records_at)
    assert set(passed[: records_at - SIZE_BYTES]) == {None}
    assert INT32.unpack_from(whole)[0] == len(whole) - SIZE_BYTES


def test_what_has_passed_counts_as_answered_and_as_told() -> None:
    stage = Stage(12, in_session=True)
    frame = stage.frame()
    assert stage.passing(frame, len(frame) - 1) is not None
    fetches, session = stage.part.fetches, stage.fetch.session
    assert session is not None
    assert (fetches.on_its_way, fetches.session_id, fetches.epoch) == (None, 0, 0)
    assert session.told[SLOT] == Marks(50, 50, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_plan_or_all_of_the_answer_must_tell_is_gathered(version: int) -> None:
    stage = Stage(version)
    two = [PartitionData(n, 0, 9, 9, records=b"records" * 9) for n in range(2)]
    for part in two:
        part.log_start_offset = 0 if version >= 5 else -1
    odd: list[dict[str, Any]] = [
        {"partition_index": 0, "error_code": 6},
        {"partition_index": 1},
        {"records": b""},
        {"responses": []},
        {"responses": [FetchableTopicResponse("apples", partitions=two)]},
        {"responses": [FetchableTopicResponse("strange", partitions=two[:1])]},
    ]
    if version >= 7:
        odd += [{"session_id": 5}, {"error_code": 0, "session_id": 9}]
    if version >= 11:
        odd += [{"preferred_read_replica": 3}]
    if version >= 12:
        odd += [{"diverging_epoch": EpochEndOffset(1, 2)}]
    for changes in odd:
        frame = stage.frame(**changes)
        assert stage.passing(frame, len(frame) - 1) is None, changes


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL])
def test_only_records_of_transactions_need_the_plan_of_a_careful_reader(careful: bool, attributes: int) -> None:
    stage = Stage(12)
    stage.fetch.careful = careful
    records = bytes(batch(base_offset=50)) + bytes(batch(base_offset=51, attributes=attributes))
    step = stage.come(stage.frame(records=records))
    assert step is (Step.DOUBT if careful and attributes else Step.ANSWER)


def test_an_answer_to_a_session_that_another_connection_has_used_needs_the_plan() -> None:
    stage = Stage(12, in_session=True)
    assert stage.fetch.session is not None
    stage.fetch.session.epoch += 1
    frame = stage.frame()
    assert stage.passing(frame, len(frame) - 1) is None
    assert stage.come(frame) is Step.DOUBT
