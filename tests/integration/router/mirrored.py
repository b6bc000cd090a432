"""A topic that is mirrored by a rule of the log, under load if a test wants it, and who carries the rule out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mesh.rpc import events
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, mirror, two_sides
from tests.fixtures.waiting import wait_until
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
            while not ended.wait(0.01):
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


@contextmanager
def mirrored_topic(log: PublishedLog, c1: KafkaCluster, c2: KafkaCluster, topic: str) -> Iterator[Mirrored]:
    """From c1 to c2; what was made is gone afterwards."""
    with two_sides(c1, c2) as (source, target):
        yield Mirrored(log, source, target, topic)
        source.will_have(f"{log.topic}.record-rules-work")
        source.will_have(f"{log.topic}.record-rules-progress")
