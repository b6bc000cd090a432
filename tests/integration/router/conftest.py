"""A log of its own for each test, and routers that are gone after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.record_rules import Side, two_sides
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import WITHIN_S, PublishedLog, ServiceProcess

StartRouter = Callable[..., ServiceProcess]


@pytest.fixture
def home(kafka_c1: KafkaCluster) -> KafkaCluster:
    """The cluster that holds the log."""
    return kafka_c1


@pytest.fixture
def log(home: KafkaCluster, unique_name: Callable[[str], str]) -> Iterator[PublishedLog]:
    """c1 and c2 are registered, apples live on c1: position 3. Nothing is published yet."""
    published = PublishedLog(home.bootstrap, unique_name("mesh.events"))
    published.cluster("c1")
    published.cluster("c2")
    published.rule("apples", to="c1")
    yield published
    published.delete()


@pytest.fixture
def control_port() -> int:
    return free_block(1)


@pytest.fixture
def start_router(log: PublishedLog, control_port: int, tmp_path: Path) -> Iterator[StartRouter]:
    """`start_router("r1", **settings)` gives a router that is ready; `wait=False`: one that starts."""
    started: list[ServiceProcess] = []

    def start(name: str, *, wait: bool = True, **settings: str) -> ServiceProcess:
        settings = {
            "NAME": name,
            "HOME_BOOTSTRAP_SERVERS": log.bootstrap,
            "EVENTS_TOPIC": log.topic,
            "SNAPSHOTS_TOPIC": log.snapshots_topic,
            "CONTROL_ADDRESSES": f"127.0.0.1:{control_port}",
            **settings,
        }
        router = ServiceProcess("router", free_block(2), tmp_path / f"{name}.log", settings)
        started.append(router)
        router.start()
        if wait:
            wait_until(lambda: router.ready() == "ready", f"router {name} is ready", WITHIN_S)
        return router

    yield start
    for router in started:
        router.stop()


@pytest.fixture
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    """The two clusters of a copy or a record rule."""
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.fixture
def c1(sides: tuple[Side, Side]) -> Side:
    return sides[0]


@pytest.fixture
def c2(sides: tuple[Side, Side]) -> Side:
    return sides[1]
