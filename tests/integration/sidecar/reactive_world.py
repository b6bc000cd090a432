"""Sidecars with a reactive consumer, beside the backend that they post to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.sidecar.reactive.reactive_consumer import ReactiveConsumer
from services.sidecar.records import Partition
from tests.fixtures.backend import Backend
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Kafka, SidecarWorld, started


def settings(backend: Backend, topic: str, group: str, **more: object) -> dict[str, Any]:
    """Quick ones."""
    return {
        "reactive_topics": (topic,),
        "reactive_group": group,
        "reactive_name": "push",
        "backend_url": backend.host_url,
        "backend_retry_delay_ms": 20,
        "value_format": "string",
        "reactive_commit_interval_ms": 50,
        "health_json": True,
        **more,
    }


@contextmanager
def reading(kafka: Kafka, backend: Backend, topic: str, group: str, **more: object) -> Iterator[SidecarWorld]:
    """A sidecar whose reactive consumer has partitions: it is the first of its group, and has them all."""
    with started(kafka.bootstrap, **settings(backend, topic, group, **more)) as world:
        wait_until(lambda: partitions_of(world), "the reactive consumer has partitions")
        yield world


def consumer(world: SidecarWorld) -> ReactiveConsumer:
    (found,) = world.sidecar.reactive.consumers
    return found


def partitions_of(world: SidecarWorld) -> set[Partition]:
    session = consumer(world).session
    return set() if session is None else session.partitions


def hindrance(world: SidecarWorld) -> str:
    """Why the sidecar's reactive consumer is not ready, as its readiness tells; empty when it is."""
    said = str(world.http.get("/health/readiness").json()["checks"]["reactive"])
    return "" if said == "OK" else said


def order(world: SidecarWorld, group: str, what: str, **body: object) -> None:
    """By the endpoints that operators have."""
    answer = world.http.post(f"/adm/kafka/consumers/{group}.push/{what}", json=body)
    assert answer.status_code == 200, answer.text


def write(kafka: Kafka, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    """Numbers."""
    kafka.write(
        topic, *({"key": b"k", "value": b"%d" % n, "partition": partition} for n in range(first, first + count))
    )


def wait_for_commit(kafka: Kafka, group: str, topic: str, partition: int, offset: int) -> None:
    wait_until(lambda: kafka.committed(group, topic, partition) == offset, f"offset {offset} is committed")
