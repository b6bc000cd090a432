"""Lineage of real clients over two clusters: A -> orders (c1) -> B -> invoices (c2) -> mirror -> copies (c1) -> C."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from services.control.domain.lineage.memory import GONE_AFTER
from tests.fixtures.meshes import Mesh
from tests.fixtures.openlineage import problems
from tests.fixtures.record_rules import Side
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

WITHIN_S = 120.0
ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class Client:
    """A client that goes on until it is ended."""

    work: Callable[[threading.Event], None]
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Client:
        self._thread = threading.Thread(target=self.work, args=(self._stop,), daemon=True)
        self._thread.start()
        return self

    def end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(WITHIN_S)


def produces(mesh: Mesh, client_id: str, topic: str) -> Client:
    def work(stop: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": mesh.gateway, "client.id": client_id})
        while not stop.wait(0.2):
            producer.produce(topic, b"x")
            producer.flush(WITHIN_S)

    return Client(work).start()


def reads(mesh: Mesh, client_id: str, topic: str, group: str, target: str = "") -> Client:
    """Reads a topic in a group, and writes each record to `target` by a second client of the application."""

    def work(stop: threading.Event) -> None:
        settings = {"bootstrap.servers": mesh.gateway, "client.id": f"{client_id}-consumer", "group.id": group}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        producer = Producer({"bootstrap.servers": mesh.gateway, "client.id": f"{client_id}-producer"})
        consumer.subscribe([topic])
        with contextlib.closing(consumer):
            while not stop.is_set():
                record = consumer.poll(0.2)
                if target and record is not None and record.error() is None:
                    producer.produce(target, record.value())
                    producer.flush(WITHIN_S)

    return Client(work).start()


@dataclass(frozen=True, slots=True)
class Story:
    """The names of the test."""

    mesh: Mesh
    name: str
    mirror: str
    clients: dict[str, Client]

    def asked(self, kind: str, name: str, *options: str) -> dict[str, Any]:
        run = self.mesh.meshctl("lineage", kind, name, "--depth", "20", "-o", "json", *options, check=False)
        answer: dict[str, Any] = json.loads(run.stdout) if run.returncode == 0 else {"edges": []}
        return answer

    def ways(self, kind: str, name: str, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
        """The edges by the names of their ends, without the names that all ends share."""
        edges = self.asked(kind, name, *options)["edges"]
        return {(self.short(each["source"]), self.short(each["target"])): each for each in edges}

    def short(self, node: dict[str, Any]) -> str:
        return str(node["name"]).replace(f"{ANONYMOUS}/", "").replace(f"{self.name}.", "")


@pytest.fixture
def story(mesh: Mesh, topic: str) -> Iterator[Story]:
    c1, c2 = Side("c1", mesh.cluster("c1")), Side("c2", mesh.cluster("c2"))
    mirror = f"lineage-{topic[-30:]}".lower().replace(".", "-").replace("_", "-").strip("-")
    c1.create(f"{topic}.orders")
    c2.create(f"old.{topic}.invoices")
    c1.create(f"{topic}.copies")
    rule = ("rule", "set", "--accept-skip", "--reason", "a test")
    mesh.meshctl(*rule, "--topic", f"{topic}.orders", "--to", "c1")
    mesh.meshctl(*rule, "--topic", f"{topic}.copies", "--to", "c1")
    mesh.meshctl(*rule, "--topic", f"{topic}.invoices", "--to", "c2", "--upstream-topic", "old.{topic}")
    mesh.meshctl("mirror", "create", mirror, "--from", "c2", "--to", "c1", "--topic", f"old.{topic}.invoices",
                 "--target-topic", f"{topic}.copies")  # fmt: skip
    clients = {
        "a": produces(mesh, f"{topic}.a-1", f"{topic}.orders"),
        "b": reads(mesh, f"{topic}.b-7", f"{topic}.orders", f"{topic}.billing", f"{topic}.invoices"),
        "c": reads(mesh, f"{topic}.c", f"{topic}.copies", f"{topic}.archive"),
    }
    yield Story(mesh, topic, mirror, clients)
    for each in clients.values():
        each.end()
    mesh.meshctl("mirror", "remove", mirror, check=False)
    c1.clean()
    c2.clean()


EXPECTED = {
    ("a", "orders"): "PRODUCES",
    ("orders", "billing"): "CONSUMES",
    ("billing", "b"): "MEMBER",
    ("b", "invoices"): "PRODUCES",
    ("invoices", "copies"): "COPIES",
    ("copies", "archive"): "CONSUMES",
    ("archive", "c"): "MEMBER",
}


def test_lineage_of_real_clients_over_two_clusters_stays_when_a_client_leaves(story: Story) -> None:
    def is_whole() -> bool:
        return story.ways("topic", f"{story.name}.orders").keys() >= EXPECTED.keys()

    wait_until(is_whole, "the whole lineage is known", WITHIN_S)
    found = story.ways("topic", f"{story.name}.orders")
    kinds = {way: each["kind"].removeprefix("LINEAGE_EDGE_KIND_") for way, each in found.items()}
    assert kinds == EXPECTED, "and nothing else"
    assert all(each["present"] for each in found.values())
    copied = found["invoices", "copies"]
    assert copied["rule"] == f"recordrules/{story.mirror}"
    assert (copied["source"]["cluster"], copied["target"]["cluster"]) == ("c2", "c1")
    assert copied["source"]["upstream_topic"] == f"old.{story.name}.invoices"
    assert copied["distance"] == 3

    up = story.ways("group", f"{story.name}.archive", "--upstream")
    assert up.keys() == EXPECTED.keys() - {("archive", "c")}
    down = story.ways("application", f"{ANONYMOUS}/{story.name}.b", "--downstream")
    assert down.keys() == {("b", "invoices"), ("invoices", "copies"), ("copies", "archive"), ("archive", "c")}
    table = story.mesh.meshctl("lineage", "topic", f"{story.name}.orders").stdout
    assert f"topic {story.name}.orders (c1)" in table

    story.clients.pop("a").end()

    def has_left() -> bool:
        return not story.ways("topic", f"{story.name}.orders")["a", "orders"]["present"]

    wait_until(has_left, "a's edge is shown as one of before", WITHIN_S)
    looked = _moment(story.asked("topic", f"{story.name}.orders")["gathering"]["time"])
    left = story.ways("topic", f"{story.name}.orders")
    assert left.keys() == EXPECTED.keys()
    first, last = (_moment(left["a", "orders"][name]) for name in ("first_time", "last_time"))
    assert first <= last <= looked - GONE_AFTER, "last seen when it was there; it may have been there for one look"
    assert left["orders", "billing"]["present"]

    events = _exported(story)
    assert [each for event in events for each in problems(event)] == []
    by_job = {event["job"]["name"]: event for event in events}  # the last event of each job counts
    c1, c2 = (f"kafka://{story.mesh.cluster(name)}" for name in ("c1", "c2"))
    b = by_job[f"{ANONYMOUS}/{story.name}.b"]
    assert b["eventType"] == "RUNNING"
    assert b["inputs"] == [{"namespace": c1, "name": f"{story.name}.orders"}]
    assert b["outputs"] == [{"namespace": c2, "name": f"old.{story.name}.invoices"}]
    assert by_job[f"{ANONYMOUS}/{story.name}.a"]["eventType"] == "COMPLETE"
    mirror = by_job[f"recordrules/{story.mirror}"]
    assert (mirror["inputs"], mirror["outputs"]) == (b["outputs"], [{"namespace": c1, "name": f"{story.name}.copies"}])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _exported(story: Story) -> list[dict[str, Any]]:
    lines = story.mesh.meshctl("lineage", "export").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    return [each for each in events if story.name in each["job"]["name"] or story.mirror in each["job"]["name"]]
