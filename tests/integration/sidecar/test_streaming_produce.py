"""Records line by line over one request, and records that are not waited for."""

import http.client
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from services.sidecar.producing.producer import RecordProducer
from services.sidecar.telemetry import metrics
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import NOWHERE, WITHIN_SECONDS, Kafka, SidecarWorld, started, value_of

NDJSON = {"Content-Type": "application/x-ndjson"}


class Stream:
    """A request that is being sent while its answer is read."""

    def __init__(self, sidecar: SidecarWorld, path: str) -> None:
        port = sidecar.http.base_url.port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_SECONDS)
        self._connection.putrequest("POST", path)
        self._connection.putheader("Content-Type", "application/x-ndjson")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        self._answer: http.client.HTTPResponse | None = None

    def send(self, *lines: object) -> None:
        self.send_bytes("".join(json.dumps(line) + "\n" for line in lines).encode())

    def send_bytes(self, part: bytes) -> None:
        self._connection.send(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    def end(self) -> None:
        self._connection.send(b"0\r\n\r\n")

    def result(self) -> Any:
        """The next line of the answer; None at its end."""
        if self._answer is None:
            self._answer = self._connection.getresponse()
            assert self._answer.status == 200, self._answer.read()
        line = self._answer.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def world(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    with started(kafka_c1.bootstrap, max_line_bytes=2000, max_produce_streams=2) as running:
        yield running


@pytest.fixture
def opened(world: SidecarWorld) -> Iterator[Callable[[str], Stream]]:
    streams: list[Stream] = []

    def open_(path: str) -> Stream:
        streams.append(Stream(world, path))
        return streams[-1]

    yield open_
    for stream in streams:
        stream.close()
    wait_until(lambda: value_of(metrics.produce_streams) == 0, "all streams have ended", WITHIN_SECONDS)


def lines_of(answer: httpx.Response) -> list[Any]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_results_come_line_by_line_while_the_request_is_being_sent(
    opened: Callable[[str], Stream], kafka: Kafka, orders: str
) -> None:
    stream = opened(f"/producers/{orders}?valueFormat=string")
    for number in range(3):
        stream.send({"value": str(number), "partition": 1})
        assert stream.result() == {"line": number + 1, "partition": 1, "offset": number}
    stream.end()
    assert stream.result() is None
    assert [record.value for record in kafka.read(orders, 3)] == [b"0", b"1", b"2"]


def test_the_first_line_may_say_how_records_are_written(world: SidecarWorld, kafka: Kafka, orders: str) -> None:
    content = b'{"keyFormat":"json","valueFormat":"BINARY"}\n\n{"key":{"k":1},"value":"AP8=","partition":0}'
    answer = world.http.post(f"/producers/{orders}", content=content, headers=NDJSON)
    assert lines_of(answer) == [{"line": 3, "partition": 0, "offset": 0}]
    (record,) = kafka.read(orders, 1)
    assert (record.key, record.value) == (b'{"k":1}', b"\x00\xff")


@pytest.mark.parametrize(
    ("head", "code"),
    [('{"valueFormat":"XML"}', "ERR11004"), ('{"vlue":1}', "ERR11004"), ('{"valueSchemaId":7}', "ERR12208")],
)
def test_a_head_that_will_not_do_refuses_the_request(world: SidecarWorld, orders: str, head: str, code: str) -> None:
    answer = world.http.post(f"/producers/{orders}", content=head + '\n{"value":1}\n', headers=NDJSON)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_a_bad_line_is_told_by_its_number_and_the_others_are_written(
    world: SidecarWorld, kafka: Kafka, orders: str
) -> None:
    lines = ['{"value":"a","partition":0}', "{oops", '{"odd":1}', '{"value":5}', '{"value":"' + "x" * 2000 + '"}']
    content = "\n".join([*lines, '{"value":"b","partition":77}', '{"value":"c","partition":0}'])
    answer = world.http.post(f"/producers/{orders}?valueFormat=string", content=content, headers=NDJSON)
    results = lines_of(answer)
    assert [one["line"] for one in results] == [1, 2, 3, 4, 5, 6, 7]
    assert [one.get("errorCode") for one in results] == [None, 40002, 40002, 40002, 40002, 40402, None]
    texts = ("not JSON", "/odd: unknown member", "integer found, string expected", "longer than 2000 bytes")
    for result, text in zip(results[1:5], texts, strict=True):
        assert text in result["error"]
        assert f"line {result['line']} is not written, the stream goes on" in result["error"]
    assert [record.value for record in kafka.read(orders, 2)] == [b"a", b"c"]


def test_many_lines_keep_their_order(world: SidecarWorld, kafka: Kafka, orders: str) -> None:
    count = 3000
    content = "".join(f'{{"value":{number},"partition":0}}\n' for number in range(count))
    results = lines_of(world.http.post(f"/producers/{orders}", content=content, headers=NDJSON))
    assert [one["line"] for one in results] == list(range(1, count + 1))
    assert [one["offset"] for one in results] == list(range(count))
    assert [record.value for record in kafka.read(orders, count)] == [str(number).encode() for number in range(count)]


def test_lines_take_the_ids_of_their_request(world: SidecarWorld, kafka: Kafka, orders: str) -> None:
    ids = {"X-Correlation-Id": "c", "X-Traceability-Id": "t"}
    world.http.post(f"/producers/{orders}", content='{"value":1}\n', headers={**NDJSON, **ids})
    (record,) = kafka.read(orders, 1)
    assert record.headers == [("X-Traceability-Id", b"t"), ("X-Correlation-Id", b"c")]


def test_no_lines_is_fine(world: SidecarWorld, orders: str) -> None:
    answer = world.http.post(f"/producers/{orders}", content=b"", headers=NDJSON)
    assert (answer.status_code, answer.text) == (200, "")


def test_an_unknown_topic_is_told_before_the_first_line(world: SidecarWorld) -> None:
    answer = world.http.post(f"/producers/nowhere-{uuid.uuid4().hex}", content='{"value":1}\n', headers=NDJSON)
    assert (answer.status_code, answer.json()["offsets"][0]["errorCode"]) == (404, 40401)


def test_a_caller_that_goes_away_ends_its_stream(opened: Callable[[str], Stream], kafka: Kafka, orders: str) -> None:
    stream = opened(f"/producers/{orders}")
    stream.send({"value": 1})
    assert stream.result()["line"] == 1
    assert value_of(metrics.produce_streams) == 1
    stream.close()
    wait_until(lambda: value_of(metrics.produce_streams) == 0, "the stream has ended", WITHIN_SECONDS)
    assert len(kafka.read(orders, 1)) == 1


def test_streams_are_bounded(opened: Callable[[str], Stream], world: SidecarWorld, orders: str) -> None:
    for _ in range(2):
        stream = opened(f"/producers/{orders}")
        stream.send({"value": 1})
        stream.result()
    answer = world.http.post(f"/producers/{orders}", content='{"value":1}\n', headers=NDJSON)
    assert (answer.status_code, answer.json()["code"]) == (503, "ERR12954")
    assert "Retry-After" in answer.headers


def test_a_silent_stream_ends_and_says_so(kafka: Kafka, orders: str) -> None:
    with started(kafka.bootstrap, stream_idle_timeout_ms=6_000) as sidecar:  # a busy caller is not silent yet
        stream = Stream(sidecar, f"/producers/{orders}")
        stream.send({"value": 1})
        assert stream.result()["offset"] == 0
        last = stream.result()
        assert (last["line"], last["errorCode"]) == (2, 50003)
        assert "nothing came for 6 s" in last["error"]
        assert stream.result() is None
        stream.close()


def test_a_stopping_sidecar_answers_what_it_has_and_ends_the_stream(kafka: Kafka, orders: str) -> None:
    with started(kafka.bootstrap) as sidecar:
        stream = Stream(sidecar, f"/producers/{orders}")
        stream.send({"value": 1})
        assert stream.result()["offset"] == 0
    assert "the sidecar is stopping" in stream.result()["error"]
    assert stream.result() is None
    stream.close()


def test_async_is_answered_before_kafka_and_written_all_the_same(
    world: SidecarWorld, kafka: Kafka, orders: str
) -> None:
    answer = world.http.post(f"/producers/{orders}?async=true", json={"records": [{"value": 1}, {"value": 2}]})
    assert (answer.status_code, answer.json()) == (202, {"requestStatus": "ACCEPTED", "records": 2})
    wait_until(lambda: value_of(metrics.queued_records) == 0, "the records are acknowledged", WITHIN_SECONDS)
    assert len(kafka.read(orders, 2)) == 2


def test_failures_of_async_are_counted_and_audited(kafka: Kafka, orders: str) -> None:
    audit = f"{orders}-audit"
    kafka.create(audit, partitions=1)
    before = value_of(metrics.async_failures)
    with started(kafka.bootstrap, audit_target="topic", audit_topic=audit) as sidecar:
        records = [{"key": "k", "value": 1, "partition": 77, "correlationId": "c"}, {"value": 2}]
        answer = sidecar.http.post(f"/producers/{orders}?async=true", json={"records": records})
        assert answer.status_code == 202
        wait_until(lambda: value_of(metrics.async_failures) - before == 1, "the failure is counted", WITHIN_SECONDS)
    events = {event.key: event for event in kafka.read(audit, 2)}  # the other one tells of the record that arrived
    event = events[b"c"]
    found = json.loads(event.value or b"")
    assert (event.key, found["auditStatus"], found["topic"], found["key"]) == (b"c", "FAILURE", orders, "k")


def test_async_without_room_is_refused(orders: str) -> None:
    settings = {"max_queued_records": 1, "queue_timeout_ms": 100}
    with started(NOWHERE, drain_timeout_ms=100, unknown_topic_timeout_ms=100, **settings) as sidecar:
        answers = [
            sidecar.http.post(f"/producers/{orders}?async=true", json={"records": [{"value": 1}]}) for _ in range(2)
        ]
    assert [answer.status_code for answer in answers] == [202, 503]
    assert "queue is full" in answers[1].json()["offsets"][0]["error"]


def test_a_surprise_ends_the_stream_with_the_line_that_begins_the_rest(
    world: SidecarWorld, opened: Callable[[str], Stream], orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(f"/producers/{orders}?valueFormat=string")
    stream.send({"value": "a"})
    assert stream.result()["line"] == 1
    monkeypatch.setattr(RecordProducer, "accept", AsyncMock(side_effect=RuntimeError("nobody thought of it")))
    stream.send({"value": "b"})
    ended = stream.result()
    assert (ended["errorCode"], "send what begins with line" in ended["error"]) == (50003, True)
    assert stream.result() is None
    monkeypatch.undo()
    rest = world.http.post(f"/producers/{orders}?valueFormat=string", content='{"value":"b"}\n', headers=NDJSON)
    assert "offset" in lines_of(rest)[0]
