"""Lineage as OpenLineage events: valid by OpenLineage's own schema, the same for the same state, sent within bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import lineage as pb
from meshctl.openlineage import endpoint
from meshctl.openlineage.endpoint import TOKEN_VARIABLE, EndpointError, EndpointTarget, url_of
from meshctl.openlineage.events import Following, jobs_of, whole
from tests.fixtures.openlineage import problems


def topic(name: str, cluster: str = "c1") -> pb.LineageNode:
    return pb.LineageNode(
        kind=pb.LINEAGE_NODE_KIND_TOPIC, name=name, cluster=cluster, upstream_topic=f"old.{name}",
        bootstrap_servers=[f"{cluster}:9092", f"{cluster}:9093"] if cluster else [],
    )  # fmt: skip


def app(name: str) -> pb.LineageNode:
    return pb.LineageNode(kind=pb.LINEAGE_NODE_KIND_APPLICATION, name=f"User:alice/{name}")


GROUP = pb.LineageNode(kind=pb.LINEAGE_NODE_KIND_GROUP, name="billing")
PRODUCES, CONSUMES = pb.LINEAGE_EDGE_KIND_PRODUCES, pb.LINEAGE_EDGE_KIND_CONSUMES
MEMBER, COPIES = pb.LINEAGE_EDGE_KIND_MEMBER, pb.LINEAGE_EDGE_KIND_COPIES


def edge(
    source: pb.LineageNode,
    target: pb.LineageNode,
    kind: Any,
    first: int,
    last: int,
    *,
    rule: str = "",
    away: bool = False,
) -> pb.LineageEdge:
    return pb.LineageEdge(
        source=source, target=target, kind=kind, rule=rule, present=not away,
        first_time=Timestamp(seconds=first), last_time=Timestamp(seconds=last),
    )  # fmt: skip


def shop(*, away: bool = False) -> list[pb.LineageEdge]:
    return [
        edge(app("a"), topic("orders"), PRODUCES, 10, 90, away=away),
        edge(topic("orders"), GROUP, CONSUMES, 20, 95),
        edge(GROUP, app("b"), MEMBER, 30, 99),
        edge(app("b"), topic("invoices", "c2"), PRODUCES, 40, 99),
        edge(app("b"), topic("before", "c2"), PRODUCES, 40, 50, away=True),
        edge(topic("invoices", "c2"), topic("copies"), COPIES, 5, 99, rule="recordrules/m"),
        edge(topic("copies"), app("reader"), CONSUMES, 60, 99),
        edge(app("lost"), topic("gone", ""), PRODUCES, 1, 2),
    ]


def told(events: Iterator[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(each["job"]["name"], each["eventType"], each["eventTime"][17:19]) for each in events]


def test_jobs_are_applications_and_record_rules_and_events_are_valid() -> None:
    events = list(whole(jobs_of(shop(away=True)), "shop"))
    assert [each for event in events for each in problems(event)] == []
    assert told(iter(events)) == [
        ("User:alice/a", "START", "10"), ("User:alice/a", "COMPLETE", "30"),
        ("User:alice/b", "START", "30"), ("User:alice/b", "RUNNING", "39"),
        ("User:alice/reader", "START", "00"), ("User:alice/reader", "RUNNING", "39"),
        ("recordrules/m", "START", "05"), ("recordrules/m", "RUNNING", "39"),
    ]  # fmt: skip
    b = next(each for each in events if each["job"]["name"] == "User:alice/b")
    assert b["inputs"] == [{"namespace": "kafka://c1:9092", "name": "old.orders"}]
    assert b["outputs"] == [{"namespace": "kafka://c2:9092", "name": "old.invoices"}], "what it writes at present"
    assert b["job"]["namespace"] == "shop"
    assert events == list(whole(jobs_of(reversed(shop(away=True))), "shop")), "the same state gives the same events"
    assert len({each["run"]["runId"] for each in events}) == 4


def test_the_schema_refuses_what_is_no_event() -> None:
    event = next(whole(jobs_of(shop()), "shop"))
    assert problems({**event, "eventType": "BEGAN"})
    assert problems({**event, "eventTime": "yesterday"})
    assert problems({**event, "producer": "nobody"})
    assert problems({**event, "run": {"runId": "1"}})
    assert problems({**event, "inputs": [{"name": "orders"}]})


def test_a_follower_tells_what_changes_and_a_job_that_comes_back_begins_another_run() -> None:
    now = [100]
    following = Following("shop", lambda: Timestamp(seconds=now[0]))
    first = list(following.events(jobs_of(shop())))
    assert len(first) == 8
    assert list(following.events(jobs_of(shop()))) == []
    now[0] = 130
    left = list(following.events(jobs_of(shop(away=True))))
    assert told(iter(left)) == [("User:alice/a", "COMPLETE", "30")]
    now[0] = 145
    back = list(following.events(jobs_of(shop())))
    assert told(iter(back)) == [("User:alice/a", "START", "25"), ("User:alice/a", "RUNNING", "25")]
    runs = {each["run"]["runId"] for each in back}
    assert len(runs) == 1
    assert left[0]["run"]["runId"] not in runs
    more = [*shop(), edge(app("a"), topic("returns"), PRODUCES, 140, 140)]
    assert told(following.events(jobs_of(more))) == [("User:alice/a", "RUNNING", "25")]


class Receiver(ThreadingHTTPServer):
    """Keeps the requests that it gets, and answers with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 201
        self.got: list[tuple[str, str, dict[str, Any]]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.path, self.headers.get("Authorization", ""), json.loads(body)))
        self.send_response(server.status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(b"no such job" if server.status >= 400 else b"")

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_events_go_to_an_endpoint_with_a_token(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-of-marquez")
    event = next(whole(jobs_of(shop()), "shop"))
    EndpointTarget(receiver.address).send(event)
    assert receiver.got == [("/api/v1/lineage", "Bearer secret-of-marquez", event)]


@pytest.mark.parametrize(("status", "error"), [(503, ConnectionError), (429, ConnectionError), (422, EndpointError),
                                                (302, EndpointError)])  # fmt: skip
def test_an_endpoint_that_does_not_take_an_event_is_tried_again_or_not(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-of-marquez")
    receiver.status = status
    with pytest.raises(error, match=str(status)) as raised:
        EndpointTarget(receiver.address).send(next(whole(jobs_of(shop()), "shop")))
    assert "secret" not in str(raised.value)


def test_an_endpoint_that_is_away_or_silent_is_an_error_within_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    event = next(whole(jobs_of(shop()), "shop"))
    with pytest.raises(OSError, match="refused"):
        EndpointTarget("http://127.0.0.1:1").send(event)
    monkeypatch.setattr(endpoint, "REQUEST_S", 0.2)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as silent, pytest.raises(OSError, match="timed out"):
        EndpointTarget(f"http://127.0.0.1:{silent.server_address[1]}").send(event)


@pytest.mark.parametrize("address", ["ftp://x", "https://", "http://x:port", "https://user:pw@x", "https://x?a=b", "x"])
def test_an_address_that_is_no_endpoint_is_refused(address: str) -> None:
    with pytest.raises(EndpointError, match=r"address|query"):
        url_of(address)


def test_the_token_never_leaves_this_machine_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-of-marquez")
    with pytest.raises(EndpointError, match="use https") as raised:
        EndpointTarget("http://marquez.example.com")
    assert "secret-of" not in str(raised.value)
    assert url_of("https://marquez.example.com/") == "https://marquez.example.com/api/v1/lineage"
    assert url_of("https://x/own/path") == "https://x/own/path"
