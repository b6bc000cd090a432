"""`meshctl cluster fail-back` of a real cluster that was killed: its topics come back, whatever is killed meanwhile."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # exported, but not by name

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.movers import Movers, running_movers
from tests.fixtures.record_rules import Side, two_sides
from tests.fixtures.waiting import wait_until

WITHIN_S = 120.0
COPIED, STRAYS = 40, 600
SLOW = "0.02"
"""Megabytes a second: the strays of a topic take some seconds."""
SLOWER = "0.005"
"""The strays of a topic, and its copy, take 15 s each."""
RETENTION_MS = "86400000"
PAUSE = "5s"
"""The machine of the tests is busy: a second may be too short for a cut."""
DONE, CANCELLED = "FAIL_BACK_STATE_DONE", "FAIL_BACK_STATE_CANCELLED"
MOVING, RECONCILING = "FAIL_BACK_STATE_MOVING", "FAIL_BACK_STATE_RECONCILING"
MOVED = "FAIL_BACK_TOPIC_STATE_MOVED"
FailBack = dict[str, Any]


@pytest.fixture(scope="module")
def doomed(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """The cluster c2, which the tests kill and start again."""
    cluster = KafkaCluster("doomed", tmp_path_factory.mktemp("doomed") / "kafka")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def sides(kafka_c1: KafkaCluster, doomed: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, doomed) as both:
        yield both


@pytest.fixture
def movers(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    sides: tuple[Side, Side],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Movers]:
    with running_movers(postgres(), kafka_c1, sides, "failbacks", tmp_path_factory.mktemp("movers")) as found:
        yield found


def values(name: str, first: int, number: int) -> list[tuple[int, bytes | None]]:
    """Records of both partitions, of 100 bytes each."""
    return [(index % 2, f"{name}-{index}".encode().ljust(100, b".")) for index in range(first, first + number)]


def begin_transaction(side: Side, topic: str) -> Any:
    """A producer whose transaction nobody ends."""
    producer = side.producer(**{"transactional.id": topic, "transaction.timeout.ms": 5000})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(WITHIN_S)
    return producer


def failed_over(
    movers: Movers, sides: tuple[Side, Side], doomed: KafkaCluster, name: str, *, with_transaction: bool = False
) -> tuple[str, str]:
    """A topic with strays on c2, and one without, whose cluster has failed over to c1 and is back.

    `with_transaction`: the second one has an open transaction when the cluster dies.
    """
    home, source = sides
    topics = f"{name}-a", f"{name}-b"
    for topic in topics:
        source.create(topic, 2, retention_ms=RETENTION_MS)
        home.will_have(topic)
        movers.route(topic, "c2")
        source.write(topic, values("old", 0, COPIED))
    movers.told("cluster", "standby", "c2", "--on", "c1", "--topics", f"{name}*")

    def is_level() -> bool:
        shown = movers.told("cluster", "standby", "show", "c2")
        parts = [part for topic in shown.get("topics", []) for part in topic.get("partitions", [])]
        return sum(int(part.get("position", 0)) for part in parts) == 2 * COPIED

    wait_until(is_level, "the copies are level", WITHIN_S)
    movers.router.stop()  # and with it the copies
    source.write(topics[0], values("stray", 0, STRAYS))
    producer = begin_transaction(source, topics[1]) if with_transaction else None
    doomed.kill()
    del producer
    code, _, error = movers.meshctl("cluster", "fail-over", "c2", "--to", "c1")
    assert code == 0, error
    for topic in topics:
        home.write(topic, values("new", 0, COPIED))
    movers.router.start()
    doomed.start()
    return topics


def shown(movers: Movers) -> FailBack:
    return movers.told("cluster", "fail-back", "show", "c2")


def shown_when(movers: Movers, is_so: Callable[[FailBack], bool], what: str) -> FailBack:
    """The fail-back, when it is so; a control that starts does not answer yet."""

    def look() -> FailBack | None:
        code, told, _ = movers.meshctl("cluster", "fail-back", "show", "c2", "-o", "json")
        found: FailBack = json.loads(told) if code == 0 else {}
        return found if found and is_so(found) else None

    found = wait_until(look, f"the fail-back {what}", WITHIN_S)
    assert found is not None
    return found


def ended(movers: Movers) -> FailBack:
    return shown_when(movers, lambda found: "end_time" in found, "ends")


def retention_of(side: Side, topic: str) -> str:
    resource = ConfigResource("topic", topic)
    [future] = side.admin.describe_configs([resource]).values()
    return str(future.result(WITHIN_S)["retention.ms"].value)


def strays_of(topic: FailBack) -> int:
    return sum(int(part.get("strays", 0)) for part in topic["partitions"])


def test_topics_come_back_while_control_and_the_router_are_killed_again_and_again(
    movers: Movers, sides: tuple[Side, Side], doomed: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    home, source = sides
    with_strays, without = failed_over(movers, sides, doomed, unique_name("killed"))
    place = home.will_have(f"{with_strays}.strays")
    code, plan, error = movers.meshctl("cluster", "fail-back", "c2", "--dry-run")
    assert code == 0, error
    rows = {line.split()[0]: line.split()[1:] for line in plan.splitlines() if line.startswith(with_strays[:-1])}
    assert rows == {with_strays: ["recreate", str(STRAYS)], without: ["copy", "on", "0"]}
    assert "nothing was changed" in plan
    assert source.partitions(with_strays) == 2
    begun = movers.told("cluster", "fail-back", "c2", "--rate", SLOW, "--pause-at-most", PAUSE, "--cuts", "50")
    assert (begun["name"], begun["state"]) == ("failbacks/c2", RECONCILING)
    states: list[str] = []
    for _ in range(4):
        found = shown_when(movers, lambda found: "topics" in found, "is shown")
        states.append(found["state"])
        if found["state"] == DONE:
            break
        movers.control.stop(signal.SIGKILL)
        movers.router.stop(signal.SIGKILL)
        movers.start()
    end = ended(movers)
    print(states, end)
    assert states[0] == RECONCILING
    assert end["state"] == DONE
    by_name = {each["topic"]: each for each in end["topics"]}
    assert {each["state"] for each in by_name.values()} == {MOVED}
    ways = {topic: each["way"] for topic, each in by_name.items()}
    assert ways == {with_strays: "FAIL_BACK_WAY_RECREATE", without: "FAIL_BACK_WAY_COPY_ON"}
    assert (strays_of(by_name[with_strays]), strays_of(by_name[without])) == (STRAYS, 0)
    strays = [(each.partition, each.value) for each in home.read(place)]
    assert sorted(strays) == sorted(values("stray", 0, STRAYS))
    for topic in (with_strays, without):
        assert source.read(topic) == home.read(topic)
        written = [*values("old", 0, COPIED), *values("new", 0, COPIED)]
        assert sorted((each.partition, each.value) for each in source.read(topic)) == sorted(written)
    assert retention_of(source, with_strays) == RETENTION_MS
    drain = movers.told("cluster", "drain", "show", end["drain"])
    assert [each["confirmed"] for each in drain["topics"]] == [True, True]
    code, _, error = movers.meshctl("cluster", "standby", "show", "c2")
    assert (code != 0, "no standby" in error) == (True, True), error


def test_a_fail_back_that_was_cancelled_goes_on_with_the_next_one_and_waits_for_an_open_transaction(
    movers: Movers, sides: tuple[Side, Side], doomed: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    home, source = sides
    topics = failed_over(movers, sides, doomed, unique_name("cancelled"), with_transaction=True)
    movers.told("cluster", "fail-back", "c2", "--strays", "append", "--rate", SLOWER)

    def some_are_there() -> bool:
        return any(each.value and each.value.startswith(b"stray") for each in home.read(topics[0]))

    wait_until(some_are_there, "some strays are in their place", WITHIN_S)
    cancelled = movers.told("cluster", "fail-back", "cancel", "c2")
    assert cancelled["state"] == CANCELLED
    there = sum(each.value is not None and each.value.startswith(b"stray") for each in home.read(topics[0]))
    assert there < STRAYS, "cancelled amid the strays"
    code, _, error = movers.meshctl("cluster", "fail-back", "cancel", "c2")
    assert (code != 0, "can't be cancelled" in error) == (True, True), error
    # the second one is cancelled amid its moves
    movers.told("cluster", "fail-back", "c2", "--strays", "topic", "--rate", SLOWER, "--at-once", "1")
    shown_when(movers, lambda found: found["state"] == MOVING, "moves")
    movers.told("cluster", "fail-back", "cancel", "c2")
    second = ended(movers)
    assert second["state"] == CANCELLED
    ways = {each["topic"]: (each["way"], strays_of(each)) for each in second["topics"]}
    assert ways == {topics[0]: ("FAIL_BACK_WAY_RECREATE", STRAYS), topics[1]: ("FAIL_BACK_WAY_RECREATE", 0)}
    movers.told("cluster", "fail-back", "c2", "--strays", "append", "--pause-at-most", PAUSE, "--cuts", "50")
    end = ended(movers)
    assert (end["state"], {each["state"] for each in end["topics"]}) == (DONE, {MOVED})
    ways = {each["topic"]: (each["way"], strays_of(each)) for each in end["topics"]}
    assert ways == {topics[0]: ("FAIL_BACK_WAY_COPY_ON", STRAYS), topics[1]: ("FAIL_BACK_WAY_COPY_ON", 0)}
    written = [*values("old", 0, COPIED), *values("new", 0, COPIED)]
    for topic in topics:
        strays = values("stray", 0, STRAYS) if topic == topics[0] else []
        assert sorted((each.partition, each.value) for each in source.read(topic)) == sorted([*written, *strays])
        assert source.read(topic) == home.read(topic)
    assert home.partitions(f"{topics[0]}.strays") == 0
