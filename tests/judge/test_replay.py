"""The parts of the replayer: its codec, its files, what it puts in the place of recorded values, what it compares."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from judge.protocol.apis import DESCRIBE_TRANSACTIONS
from judge.protocol.batches import encode as batch_of
from judge.protocol.connection import Address
from judge.replay.bindings import Bindings, Bound
from judge.replay.codec import decode, encode
from judge.replay.comparing import Comparison, Difference
from judge.replay.conversation import conversation
from judge.replay.frames import with_message
from judge.replay.recording import Event, Kind, Recording, RecordingError, read
from judge.replay.rules import ANY, RULES
from judge.replay.settling import await_markers
from judge.replay.specification import Field, MessageSpec, Specifications
from judge.replay.verdict import Finding, Verdict
from judge.systems.client_jars import client_jars

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.rec"))


@pytest.fixture(scope="module")
def specs(kafka_jars: None) -> Specifications:
    return Specifications(client_jars())


def spec(specs: Specifications, name: str, version: int) -> MessageSpec:
    return next(each for each in specs.messages() if each.name == name and version in each.versions)


def test_each_message_in_each_version_is_read_as_it_was_written(specs: Specifications) -> None:
    known = list(specs.messages())
    assert len(known) > 150
    for each in known:
        for version in range(each.versions.first, each.versions.last + 1):
            message = _filled(each.fields, version, version in each.flexible)
            assert decode(each, version, encode(each, version, message)) == message, (each.name, version)


def _filled(fields: tuple[Field, ...], version: int, flexible: bool) -> dict[str, Any]:
    """Each field with a value that no default has."""
    values = {"bool": True, "string": "ä", "bytes": b"b", "records": b"r", "uuid": bytes(range(16)), "float64": 0.5}
    found: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions or (version in field.tagged and not flexible):
            continue
        value = _filled(field.parts, version, flexible) if field.parts else values.get(field.kind, 7)
        found[field.name] = [value, value] if field.is_array else value
    return found


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recorded_requests_are_written_again_byte_for_byte(path: Path, specs: Specifications) -> None:
    talk = conversation(specs, read(path).events)
    assert len(talk.exchanges) > 100
    for exchange in talk.exchanges:
        request = exchange.request
        if specs.find(request.key, request.version, is_request=True) is None:
            assert request.api == "ApiVersions", "a client may only ask for a version of the future there"
            continue
        assert request.message is not None, request.title
        assert with_message(specs, request, request.message) == request.header + request.body, request.title
        assert exchange.recorded is None or exchange.recorded.message is not None, request.title


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_list_of_topics_that_has_not_heard_of_a_change_yet_is_left_out(path: Path, specs: Specifications) -> None:
    """An endpoint that lists the new topic at once can never answer so, and is asked again to no end."""
    there: set[str] = set()
    made: set[str] = set()
    for exchange in conversation(specs, read(path).events).exchanges:
        told = exchange.recorded.message if exchange.recorded else None
        if told is None or exchange.request.message is None:
            continue
        names = {topic.get("Name") for topic in told.get("Topics") or told.get("Responses") or ()}
        fine = {topic.get("Name") for topic in told.get("Topics") or told.get("Responses") or () if not _code(topic)}
        if exchange.request.api == "CreateTopics":
            there, made = there | fine, made | fine
        elif exchange.request.api == "DeleteTopics":
            there -= fine
        elif exchange.request.api == "Metadata" and exchange.request.message.get("Topics") is None:
            assert names & made == there, f"exchange {exchange.number}"


def _code(topic: dict[str, Any]) -> int:
    return int(topic.get("ErrorCode", 0))


def test_recordings_are_small_in_all() -> None:
    assert RECORDINGS
    assert sum(path.stat().st_size for path in RECORDINGS) < 1_000_000


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    events = (
        Event(Kind.OPENED, 1, b"127.0.0.1:9092"),
        Event(Kind.REQUEST, 1, b"x" * 300, 7),
        Event(Kind.CLIENT_ENDED, 1),
    )
    Recording({"client": "a test"}, events).write(tmp_path / "a.rec")
    assert read(tmp_path / "a.rec") == Recording({"client": "a test"}, list(events))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"HELLO" + data[5:], "no recording"),
        (lambda data: data[:5] + b"\x09" + data[6:], "format 9"),
        (lambda data: data[:-9], "cut short"),
        (lambda data: data[:20] + b"\0\0\0\0" + data[24:], "damaged"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(damage: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    Recording({}, [Event(Kind.OPENED, 1, b"127.0.0.1:9092")]).write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordingError, match=said):
        read(path)


def test_a_producer_gets_its_own_id_here_also_within_its_batches(specs: Specifications) -> None:
    bindings = Bindings()
    init = spec(specs, "InitProducerIdResponse", 4)
    bindings.learn(init.fields, _init(7, 0), _init(4711, 3))
    produce = spec(specs, "ProduceRequest", 9)
    records = batch_of([b"apple"], now_ms=1, producer_id=7, epoch=0, sequence=5)
    asked: dict[str, Any] = {"TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": records}]}]}
    written = bindings.rewritten(produce.fields, asked)["TopicData"][0]["PartitionData"][0]["Records"]
    assert struct.unpack_from(">qhi", written, 43) == (4711, 3, 5)
    assert struct.unpack_from(">I", written, 17)[0] == crc32c(written[21:])
    assert asked["TopicData"][0]["PartitionData"][0]["Records"] == records, "the recording stays as it is"
    assert bindings.in_recorded_words(init.fields, _init(4711, 3))["ProducerId"] == 7


def test_an_epoch_that_the_client_counted_on_is_counted_on_here(specs: Specifications) -> None:
    bindings = Bindings()
    init = spec(specs, "InitProducerIdResponse", 4)
    bindings.learn(init.fields, _init(7, 0), _init(4711, 3))
    asked = bindings.rewritten(spec(specs, "InitProducerIdRequest", 4).fields, {"ProducerId": 7, "ProducerEpoch": 2})
    assert (asked["ProducerId"], asked["ProducerEpoch"]) == (4711, 5)


def test_topics_are_asked_for_by_the_ids_that_they_have_here(specs: Specifications) -> None:
    bindings = Bindings()
    metadata = spec(specs, "MetadataResponse", 12)
    recorded = {"Topics": [_topic("a", b"1" * 16), _topic("b", b"2" * 16)]}
    here = {"Topics": [_topic("b", b"4" * 16), _topic("a", b"3" * 16)]}
    bindings.learn(metadata.fields, recorded, here)
    asked = bindings.rewritten(
        spec(specs, "FetchRequest", 13).fields,
        {"Topics": [{"TopicId": b"2" * 16, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": 5}]}]},
    )
    assert asked["Topics"] == [{"TopicId": b"4" * 16, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": 5}]}]


def test_producers_of_two_clusters_may_have_the_same_id(specs: Specifications) -> None:
    kafka = Bindings()
    mesh = Bindings(aliases=kafka.aliases)
    init = spec(specs, "InitProducerIdResponse", 4)
    for recorded in (7, 8):
        kafka.learn(init.fields, _init(recorded, 0), _init(recorded + 10, 0))
        mesh.learn(init.fields, _init(recorded, 0), _init(0, 0))
    assert {kafka.word(Bound.PRODUCER, 17), kafka.word(Bound.PRODUCER, 18), mesh.word(Bound.PRODUCER, 0)} == {7}
    assert kafka.word(Bound.PRODUCER, 99) == "a new producer"


def test_a_value_that_nothing_recorded_stands_for_is_new() -> None:
    assert Bindings().word(Bound.ID, b"9" * 16) == "a new id"


def test_another_error_code_is_a_difference_and_another_text_is_none(specs: Specifications) -> None:
    fields = spec(specs, "CreateTopicsResponse", 5).fields
    a = {"Topics": [{"Name": "t", "ErrorCode": 36, "ErrorMessage": "there"}]}
    b: dict[str, Any] = {"Topics": [{"Name": "t", "ErrorCode": 36, "ErrorMessage": "exists"}]}
    assert list(Comparison("CreateTopics", RULES).differences(fields, a, b)) == []
    b["Topics"][0]["ErrorCode"] = 17
    found = list(Comparison("CreateTopics", RULES).differences(fields, a, b))
    assert found == [Difference("Topics[].ErrorCode", "Topics[t].ErrorCode", 36, 17)]


def test_members_that_the_leader_of_a_group_meets_first_are_told_apart_by_what_they_said(specs: Specifications) -> None:
    bindings = Bindings()
    join = spec(specs, "JoinGroupResponse", 5)
    bindings.learn(join.fields, _joined("r-1", "r-1", "r-2", "r-3"), _joined("h-1", "h-3", "h-1", "h-2"))
    asked: dict[str, Any] = {"MemberId": "r-1", "Assignments": [{"MemberId": f"r-{each}"} for each in (1, 2, 3)]}
    sync = bindings.rewritten(spec(specs, "SyncGroupRequest", 3).fields, asked)
    assert [each["MemberId"] for each in sync["Assignments"]] == ["h-1", "h-2", "h-3"]
    a, b = _joined("r-1", "r-1", "r-2", "r-3"), _joined("h-1", "h-3", "h-1", "h-2")
    told = bindings.in_recorded_words(join.fields, b)
    assert list(Comparison("JoinGroup", RULES).differences(join.fields, a, told)) == []


def test_operations_that_a_client_may_do_are_told_or_said_not_to_be_told(specs: Specifications) -> None:
    fields = spec(specs, "DescribeClusterResponse", 2).fields
    compare = Comparison("DescribeCluster", RULES)
    name = "ClusterAuthorizedOperations"
    assert list(compare.differences(fields, {name: 8096}, {name: -(2**31)})) == []
    for wrong in (-1, 0, None, 8095):
        assert list(compare.differences(fields, {name: 8096}, {name: wrong})) == [Difference(name, name, 8096, wrong)]


def test_a_verdict_begins_with_its_differences() -> None:
    difference = Difference("ErrorCode", "ErrorCode", 0, 27)
    found = Finding("a", 1, 1, "JoinGroup", 5, difference, None)
    verdict = Verdict([found], Counter({"JoinGroup 5": 1}), 0, {"A": 300, "B": 2})
    first, *_, last = verdict.text().splitlines()
    assert first == "1 differences in 1 groups"
    assert last.endswith("asked again: A 300, B 2")


def test_a_replay_goes_on_when_the_markers_of_an_ended_transaction_are_written() -> None:
    """Not when the end is answered: the ends of logs that a client asks for next depend on the markers."""
    told = ["PrepareCommit", "PrepareCommit", "CompleteCommit"]
    with answering(lambda: told.pop(0)) as to:
        assert await_markers(to, "t", 60.0)
    assert told == []


def test_a_replay_does_not_wait_for_markers_where_the_endpoint_does_not_tell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        to = listener.getsockname()
    assert not await_markers(to, "t", 10.0)


def test_each_rule_says_why_and_names_a_field_that_exists(specs: Specifications) -> None:
    paths: dict[str, set[str]] = {}
    for each in specs.messages():
        if not each.is_request:
            paths.setdefault(each.api, set()).update(_paths(each.fields, ""))
    for rule in RULES:
        assert rule.why.endswith(".") and len(rule.why.split()) > 4, rule
        known = set().union(*paths.values()) if rule.api == ANY else paths[rule.api]
        name = rule.path.removeprefix(ANY)
        place = "".join(part if index % 2 == 0 else "[]" for index, part in enumerate(_split(name)))
        assert any(path.endswith(place) for path in known), rule


def _split(path: str) -> list[str]:
    return path.replace("]", "[").split("[")


def _paths(fields: tuple[Field, ...], before: str) -> set[str]:
    found = set()
    for field in fields:
        here = f"{before}{field.name}"
        found |= {here, f"{here}[]"} if field.is_array else {here}
        found |= _paths(field.parts, f"{here}[]." if field.is_array else f"{here}.")
    return found


def _init(producer_id: int, epoch: int) -> dict[str, Any]:
    return {"ThrottleTimeMs": 0, "ErrorCode": 0, "ProducerId": producer_id, "ProducerEpoch": epoch}


def _topic(name: str, topic_id: bytes) -> dict[str, Any]:
    return {"Name": name, "TopicId": topic_id, "Partitions": []}


def _joined(own: str, *members: str) -> dict[str, Any]:
    """Each member subscribes with the number at the end of its id."""
    told = [{"MemberId": each, "GroupInstanceId": None, "Metadata": each[-1:].encode()} for each in members]
    return {"ErrorCode": 0, "GenerationId": 1, "Leader": own, "MemberId": own, "Members": told}


@contextmanager
def answering(state: Callable[[], str]) -> Iterator[Address]:
    """An endpoint that answers each DescribeTransactions with the next state."""

    def serve(listener: socket.socket) -> None:
        near, _ = listener.accept()
        with near, near.makefile("rwb") as stream:
            while head := stream.read(4):
                frame = stream.read(*struct.unpack(">i", head))
                states = [{**UNTOLD, "state": state()}]
                body = DESCRIBE_TRANSACTIONS.response.write({"throttle_ms": 0, "states": states})
                stream.write(struct.pack(">i", 5 + len(body)) + frame[4:8] + b"\0" + body)
                stream.flush()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()
        thread.join()


UNTOLD = {
    "error": 0,
    "transactional_id": "t",
    "timeout_ms": 0,
    "started_ms": 0,
    "producer_id": 0,
    "epoch": 0,
    "topics": [],
}
