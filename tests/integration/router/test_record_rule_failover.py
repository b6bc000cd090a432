"""Two routers and a mirror, without control: the router that runs it is killed, the other one goes on, exactly once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from mesh.rpc import events, record_rules
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, mirror, two_sides
from tests.fixtures.waiting import wait_until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.parts import PublishedLog, ServiceProcess

WITHIN_S = 60.0
PARTITIONS = 3


class Mirrored:
    """A topic of c1 that is mirrored to c2 by a rule of the log."""

    def __init__(self, log: PublishedLog, c1: Side, c2: Side, topic: str) -> None:
        self.log, self.c1, self.c2, self.topic = log, c1, c2, topic
        self.rule_id = f"r-{abs(hash(topic)):x}"
        for side in (c1, c2):
            log.cluster(f"real-{side.name}", int(side.bootstrap.rpartition(":")[2]))
        c1.create(topic, PARTITIONS)
        c2.will_have(topic)
        spec = mirror(self.rule_id, topic, source="real-c1", target="real-c2")
        self.decide(record_rule_created=events.RecordRuleCreated(rule=spec))

    def decide(self, **payload: object) -> None:
        self.log.about_records(**payload)
        self.log.publish()

    def rewind(self, start: record_rules.StartAt) -> None:
        self.decide(record_rule_rewound=events.RecordRuleRewound(record_rule_id=self.rule_id, start=start))

    def owner_and_other(self, routers: list[ServiceProcess]) -> list[ServiceProcess]:
        """The one whose worker copies records, once it is one of the two, and the other one."""

        def copying() -> list[bool]:
            return [self.written_by(router) > 0 for router in routers]

        wait_until(lambda: copying().count(True) == 1, "the mirror runs on one router", WITHIN_S)
        return routers if copying()[0] else routers[::-1]

    def written_by(self, router: ServiceProcess) -> float:
        """Records, since its worker began."""
        return router.metric(f'record_rule_records{{outcome="written",rule="{self.rule_id}"')

    def has_all(self) -> bool:
        """Whether every record of c1 is on c2, once and in its place."""
        return [each.content for each in self.c2.read(self.topic)] == [
            each.content for each in self.c1.read(self.topic)
        ]

    @contextmanager
    def load(self) -> Iterator[None]:
        """Records without end on all partitions, inside."""
        ended, producer = threading.Event(), self.c1.producer()

        def produce() -> None:
            number = 0
            while not ended.wait(0.002):
                producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS)
                producer.poll(0)
                number += 1

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            assert producer.flush(WITHIN_S) == 0


@pytest.fixture
def mirrored(
    log: PublishedLog, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, unique_name: Callable[[str], str]
) -> Iterator[Mirrored]:
    with two_sides(kafka_c1, kafka_c2) as (c1, c2):
        yield Mirrored(log, c1, c2, unique_name("mirrored"))
        c1.will_have(f"{log.topic}.record-rules-work")


def test_a_mirror_goes_on_whichever_router_stops_or_is_killed(mirrored: Mirrored, start_router: StartRouter) -> None:
    routers = [start_router("r1"), start_router("r2")]
    with mirrored.load():
        first, heir = mirrored.owner_and_other(routers)
        first.stop()
        wait_until(lambda: mirrored.written_by(heir) > 0, "the other router goes on", WITHIN_S)

        first.start()
        wait_until(lambda: first.ready() == "ready", "the first one is back", WITHIN_S)
        wait_until(lambda: first.metric("record_rule_partitions") > 0, "the routers share the rules", WITHIN_S)
        second, heir = mirrored.owner_and_other(routers)
        second.stop(signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: mirrored.written_by(heir) > 0, "the other router goes on", WITHIN_S)
        print(f"the other router has gone on {time.monotonic() - killed:.1f} s after the kill")
    wait_until(mirrored.has_all, "each record is there once, in its place", WITHIN_S)


def test_a_rewind_is_carried_out_once_although_its_worker_is_killed(
    mirrored: Mirrored, start_router: StartRouter
) -> None:
    router = start_router("r1")
    mirrored.c1.write(mirrored.topic, [(number % PARTITIONS, b"%d" % number) for number in range(30)])
    wait_until(lambda: mirrored.written_by(router) == 30, "the records are copied", WITHIN_S)
    mirrored.rewind(record_rules.StartAt(earliest=True))
    wait_until(lambda: mirrored.written_by(router) == 60, "they are copied again", WITHIN_S)

    [worker] = psutil.Process(router.pid).children()
    worker.kill()
    mirrored.c1.write(mirrored.topic, [(number, b"new") for number in range(PARTITIONS)])
    wait_until(lambda: mirrored.written_by(router) == PARTITIONS, "another worker goes on", WITHIN_S)
    values = [each.value for each in mirrored.c2.read(mirrored.topic)]
    assert (len(values), values.count(b"new")) == (60 + PARTITIONS, PARTITIONS)
