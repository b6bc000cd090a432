"""Records as they come: server-sent events and lines of JSON, acknowledged or not."""

import contextlib
import json
from collections.abc import Iterator

import httpx
import pytest

from services.sidecar.consuming import reads
from services.sidecar.telemetry import metrics
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Instance, Json, Kafka, SidecarWorld, started, value_of

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"


class Stream:
    """An answer that goes on, as a client reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def lines(self, count: int) -> list[Json]:
        """So many records of an answer with a line for each."""
        found: list[Json] = []
        while len(found) < count:
            if line := next(self._lines):
                found.append(json.loads(line))
        return found

    def event(self) -> dict[str, str]:
        """The next server-sent event, without comments."""
        event: dict[str, str] = {}
        for line in self._lines:
            if not line and "data" in event:
                return event
            name, separator, text = line.partition(": ")
            if separator and name:
                event[name] = text
        raise EOFError("the stream is over")

    def rest(self) -> list[str]:
        return [line for line in self._lines if line]


@contextlib.contextmanager
def streaming(instance: Instance, accept: str = LINES, after: str = "", **query: object) -> Iterator[Stream]:
    headers = {"Accept": accept} | ({"Last-Event-ID": after} if after else {})
    parameters = {name: str(value) for name, value in query.items()}
    with instance.http.stream("GET", f"{instance.path}/records", params=parameters, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield Stream(answer)


def offsets(records: list[Json]) -> list[int]:
    return [record["offset"] for record in records]


@pytest.fixture
def reader(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> Instance:
    """Assigned to a partition with ten records, 0 to 9."""
    kafka.write(orders, *({"value": str(number).encode(), "partition": 0} for number in range(10)))
    instance = sidecar.create(group, "c1")
    instance.assign({"topic": orders, "partition": 0})
    return instance


def acknowledge(instance: Instance, topic: str, offset: int) -> list[Json]:
    answer = instance.post("acknowledgements", {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]})
    assert answer.status_code == 200, answer.text
    committed: list[Json] = answer.json()
    return committed


def test_a_line_for_each_record_that_comes(reader: Instance, kafka: Kafka, orders: str) -> None:
    with streaming(reader, window=20) as stream:
        assert stream.answer.headers["content-type"] == LINES
        records = stream.lines(10)
        assert (offsets(records), records[3]["value"]) == (list(range(10)), 3)
        kafka.write(orders, {"value": b'{\r\n "pretty": "printed"}', "partition": 0})
        assert stream.lines(1)[0]["value"] == {"pretty": "printed"}


def test_events_have_ids_that_acknowledge(reader: Instance, kafka: Kafka, orders: str, group: str) -> None:
    with streaming(reader, EVENTS) as stream:
        assert stream.answer.headers["content-type"].startswith(EVENTS)
        events = [stream.event() for _ in range(10)]
        assert events[0]["retry"]
        assert [json.loads(event["data"])["offset"] for event in events] == list(range(10))
        answer = reader.post("acknowledgements", {"cursor": events[6]["id"]})
        assert answer.json() == [{"topic": orders, "partition": 0, "consumed": 6, "committed": 7}]
    assert kafka.committed(group, orders, 0) == 7


def test_the_window_opens_as_records_are_acknowledged(reader: Instance, kafka: Kafka, orders: str, group: str) -> None:
    with streaming(reader, window=3) as stream:
        assert offsets(stream.lines(3)) == [0, 1, 2]
        assert [one["committed"] for one in acknowledge(reader, orders, 1)] == [2]
        assert offsets(stream.lines(2)) == [3, 4]
        assert acknowledge(reader, orders, 0) == []  # long acknowledged
        assert [one["committed"] for one in acknowledge(reader, orders, 100)] == [5]  # no more than was given
        assert offsets(stream.lines(3)) == [5, 6, 7]
        reader.commit()  # as good as an acknowledgement of all
        assert offsets(stream.lines(2)) == [8, 9]
    assert kafka.committed(group, orders, 0) == 8


def test_what_was_not_acknowledged_comes_again(reader: Instance, orders: str) -> None:
    with streaming(reader, window=6) as stream:
        assert offsets(stream.lines(6)) == list(range(6))
        acknowledge(reader, orders, 2)
    with streaming(reader) as stream:
        assert offsets(stream.lines(7)) == list(range(3, 10))
    wait_until(lambda: value_of(metrics.open_requests) == 0, "the stream has ended")
    assert offsets(reader.read_all(7)) == list(range(3, 10))


def test_a_stream_goes_on_after_the_last_event_that_its_client_has(reader: Instance) -> None:
    with streaming(reader, EVENTS) as stream:
        last_id = [stream.event()["id"] for _ in range(5)][-1]
    with streaming(reader, EVENTS, after=last_id) as stream:
        assert json.loads(stream.event()["data"])["offset"] == 5


def test_a_subscribed_stream_goes_on_after_the_last_event_too(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    kafka.write(orders, *({"value": b"1", "partition": 0} for _ in range(3)))
    first = sidecar.create(group, "c1")
    first.subscribe(orders)
    with streaming(first, EVENTS) as stream:
        last_id = [stream.event()["id"] for _ in range(2)][-1]
    first.delete()
    second = sidecar.create(group, "c2")
    second.subscribe(orders)
    with streaming(second, EVENTS, after=last_id) as stream:
        assert json.loads(stream.event()["data"])["offset"] == 2


def test_without_acknowledgements_commits_are_as_for_any_read(
    reader: Instance, kafka: Kafka, orders: str, group: str
) -> None:
    with streaming(reader, ack="none") as stream:
        stream.lines(10)
        answer = reader.post("acknowledgements", {"offsets": []})
        assert (answer.status_code, answer.json()["code"]) == (409, "ERR12904")
        assert kafka.committed(group, orders, 0) < 0
        reader.commit()
    assert kafka.committed(group, orders, 0) == 10
    wait_until(lambda: value_of(metrics.open_requests) == 0, "the stream has ended")
    assert reader.read(timeout=200) == []


def test_one_stream_or_read_at_a_time(reader: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    with streaming(reader), monkeypatch.context() as hasty:
        hasty.setattr(reads, "TAKE_OVER_SECONDS", 0.1)
        for accept in (LINES, "application/json"):
            refused = reader.http.get(f"{reader.path}/records", headers={"Accept": accept})
            assert (refused.status_code, refused.json()["code"]) == (409, "ERR12904")
    assert len(reader.read_all(10)) == 10  # waits until the stream is over


def test_other_calls_are_served_while_a_stream_goes_on(reader: Instance, orders: str) -> None:
    with streaming(reader) as stream:
        stream.lines(10)
        assert reader.assignments() == [{"topic": orders, "partition": 0}]
        assert reader.post("positions/first", {}).status_code == 204
        assert offsets(stream.lines(10)) == list(range(10))


def test_a_record_that_does_not_fit_ends_the_stream_with_a_word(reader: Instance, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, {"value": b"{", "partition": 0})
    with streaming(reader, EVENTS) as stream:
        for _ in range(10):
            stream.event()
        error = stream.event()
        assert error["event"] == "error"
        assert json.loads(error["data"])["code"] == "ERR12205"
        with pytest.raises(EOFError):
            stream.event()
    with streaming(reader, LINES) as stream:
        *_, last = stream.rest()
        assert f"{orders}-0 offset 10" in json.loads(last)["error"]["description"]


def test_a_quiet_stream_shows_that_it_lives(kafka: Kafka, orders: str, group: str) -> None:
    with started(kafka.bootstrap, stream_heartbeat_ms=100) as sidecar:
        instance = sidecar.create(group, "c1")
        instance.assign({"topic": orders, "partition": 0})
        with streaming(instance, EVENTS) as stream:
            assert next(line for line in stream.answer.iter_lines() if line.startswith(":")) == ": still here"


def test_a_stop_ends_streams_as_they_should(kafka: Kafka, orders: str, group: str) -> None:
    kafka.write(orders, {"value": b"1", "partition": 0})
    with contextlib.ExitStack() as stack:
        with started(kafka.bootstrap) as sidecar:
            instance = sidecar.create(group, "c1")
            instance.assign({"topic": orders, "partition": 0})
            client = stack.enter_context(httpx.Client(base_url=sidecar.http.base_url, timeout=30))
            own = Instance(client, instance.path)
            stream = stack.enter_context(streaming(own, LINES))
            assert offsets(stream.lines(1)) == [0]
        assert stream.rest() == []  # and no broken connection


@pytest.mark.parametrize("after", ["nonsense", "e30x", "eyJhIjp7IjAiOi0xfX0"])
def test_an_id_that_is_none_of_ours_is_refused(reader: Instance, after: str) -> None:
    answer = reader.http.get(f"{reader.path}/records", headers={"Accept": EVENTS, "Last-Event-ID": after})
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")
    assert reader.post("acknowledgements", {"cursor": after}).status_code == 400


def test_many_records_through_a_slow_reader(reader: Instance, kafka: Kafka, orders: str) -> None:
    """What a reader does not take stays in Kafka, and its connection; its instance stays responsive."""
    kafka.write(orders, *({"value": b'"%b"' % (b"x" * 50_000), "partition": 0} for _ in range(200)))
    with streaming(reader, window=10_000) as stream:
        assert offsets(stream.lines(10)) == list(range(10))
        assert reader.assignments() == [{"topic": orders, "partition": 0}]
        assert offsets(stream.lines(200)) == list(range(10, 210))
