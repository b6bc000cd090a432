"""A large answer that passes while it comes is the same, byte for byte, as one that has come as a whole."""

from dataclasses import replace
from typing import Any

import pytest

from mesh.routing import ExactName, ForwardingRule
from services.gateway.requests.plan import Body, MeshView, RawResponse
from services.gateway.requests.records.fetch_road import FetchRoad
from services.gateway.requests.topic_names import RenamedKnowledge, TopicNames
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import SIZE_BYTES, encode_request, encode_response, response_prefix
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.primitives import INT32
from services.gateway.wire.scanner import patch_correlation_id
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.requests.records.fetching import answer, play, raw, topic_id

CLIENTS_ID = 77
VERSIONS = (4, 5, 7, 9, 11, 12, 13, 18)


class Renaming(World):
    """Its clients have other names for topics."""

    def view(self) -> MeshView:
        known = {name: RenamedKnowledge(each, TopicNames(name, self.table)) for name, each in self.clusters.items()}
        return replace(super().view(), clusters=known)


class Stage:
    """A client for whom a road was learnt, and who has asked again."""

    def __init__(self, version: int, *, session: bool = False, renamed: bool = False) -> None:
        self.version, self.sent_version = version, min(version, 12)
        self.world = World({"c1": ["pears" if renamed else "apples", "other"]})
        self.upstream = "apples"
        if renamed:
            self.world = Renaming({"c1": ["apples"]})
            self.world.add_rule(ForwardingRule("green", ExactName("pears"), "c1", "apples"))
        self.name = "pears" if renamed else "apples"
        self.session_id = 0
        first = FetchableTopicResponse(self.name, partitions=[PartitionData(0, 0, 9, 9 if version > 3 else -1, 0)])
        if version < 5:
            first.partitions[0].log_start_offset = -1
        for epoch in (0, 1) if session else (-1,):
            message = self._request(epoch)
            book = play(self.world, message, version)
            book.answered(raw(first, version=self.sent_version))
            self.session_id = answer(book, version).session_id
        road = self.world.session.fetch_road
        assert isinstance(road, FetchRoad)
        frame = memoryview(bytearray(encode_request(self._request(2 if session else -1, 43), version, 7, "test")))
        asking = road.take(frame, self.world.memory.fetch_sessions, 0, self.world)
        assert asking is not None
        self.road = road
        self.asking = asking

    def _request(self, epoch: int, offset: int = 42) -> FetchRequest:
        topic = FetchTopic("", topic_id(self.name)) if self.version >= 13 else FetchTopic(self.name)
        topic.partitions = [FetchPartition(0, -1, offset, partition_max_bytes=1000)]
        return FetchRequest(
            max_wait_ms=500, session_id=self.session_id, session_epoch=epoch, topics=[topic], max_bytes=1000
        )

    def frame(self, **changes: Any) -> bytearray:
        """The broker's answer."""
        part = PartitionData(0, 0, 50, 50, 3 if self.sent_version >= 5 else -1, records=b"records" * 20)
        part.aborted_transactions = [AbortedTransaction(1, 2), AbortedTransaction(3, 4)]
        message = FetchResponse(5, responses=[FetchableTopicResponse(self.upstream, partitions=[part])])
        for name, value in changes.items():
            setattr(part if hasattr(part, name) else message, name, value)
        return bytearray(encode_response(message, self.sent_version, 3))

    def whole(self, frame: bytearray) -> bytes:
        found = self.road.answered(self.asking, memoryview(frame))
        assert found is not None
        match found[0]:
            case RawResponse(view):
                patch_correlation_id(view, SIZE_BYTES, CLIENTS_ID)
                return bytes(view)
            case Body(pieces):
                body = b"".join(pieces)
                return bytes(response_prefix(ApiKey.FETCH, self.version, CLIENTS_ID, len(body))) + body
            case other:
                raise AssertionError(other)

    def passing(self, frame: bytearray, cut: int) -> bytes | None:
        beginning, missing = memoryview(bytearray(frame[:cut])), len(frame) - cut
        found = self.road.begun(self.asking, beginning, missing)
        if found is None:
            assert beginning == frame[:cut], "whoever gathers it must find it as it was"
            return None
        pieces = self.road.passing(self.asking, found, beginning, missing, CLIENTS_ID)
        return b"".join(pieces) + frame[cut:]


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_it_is_cut(version: int, session: bool, renamed: bool) -> None:
    if session and version < 7:
        return
    stage = Stage(version, session=session, renamed=renamed)
    frame = stage.frame()
    whole = stage.whole(bytearray(frame))
    passed = [stage.passing(frame, cut) for cut in range(SIZE_BYTES, len(frame))]
    records_at = bytes(frame).index(b"records")
    assert passed[records_at - SIZE_BYTES :] == [whole] * (len(frame) - records_at)
    assert set(passed[: records_at - SIZE_BYTES]) == {None}
    assert INT32.unpack_from(whole)[0] == len(whole) - SIZE_BYTES


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_plan_or_all_of_the_answer_must_tell_is_gathered(version: int) -> None:
    stage = Stage(version)
    two = [PartitionData(n, 0, 9, 9, records=b"records" * 9) for n in range(2)]
    for part in two:
        part.log_start_offset = 0 if version >= 5 else -1
    odd: list[dict[str, Any]] = [
        {"partition_index": 0, "error_code": 6},
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
