"""How long a router takes to start with a long log: from its beginning, and from a snapshot.

The log is a mixed one: 10,000 rules about topics, prefixes and expressions, which change and move again and again,
clusters, and the instances of sidecars. `MESH_BENCH_EVENTS` is its length.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from mesh.event_log import upcast
from mesh.routing import Folding, RoutingState
from mesh.routing.state_codec import state_to_proto
from mesh.rpc import events, routing
from services.router.agents.snapshots import Snapshot, hash_of, records_of
from tests.bench.figures import Sheet, Table
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import PublishedLog, ServiceProcess, create_topic

EVENTS = int(os.environ.get("MESH_BENCH_EVENTS", "1000000"))
RULES = 10_000
CLUSTERS = ("c1", "c2", "c3")
STARTS = 3
GOAL_S = 5
NOT_BY_THE_CLOCK = 7200
AT_ONCE = 10_000
"""Records between two flushes."""


def long_log(length: int) -> Iterator[bytes]:
    """Events as they stand in the topic."""
    chance = random.Random(1)
    position, held = 0, False

    def event() -> events.Event:
        made = events.Event(position=position, event_id=f"{position:036}", stream="rules", actor="alice")
        made.time.FromNanoseconds(1_700_000_000_000_000_000 + position)
        return made

    while position < length:
        position += 1
        made, what = event(), chance.random()
        if position <= len(CLUSTERS):
            spec = routing.ClusterSpec(cluster_name=CLUSTERS[position - 1], bootstrap_servers=["127.0.0.1:9092"])
            made.cluster_registered.cluster.CopyFrom(routing.UpstreamCluster(spec=spec, ordinal=position))
        elif position == len(CLUSTERS) + 1:
            changes = made.rule_set_changed.changes
            for number in range(RULES):
                changes.add(rank=float(number)).created.CopyFrom(rule(number, CLUSTERS[0]))
        elif held:
            made.rollout_switched.revision, held = position - 1, False
        elif what < 0.4:
            made.consumer_instance_registered.instance.name = f"instances/g.{position}"
        elif what < 0.45:
            spec = routing.ClusterSpec(cluster_name="c2", bootstrap_servers=[f"127.0.0.1:{9000 + position % 99}"])
            made.cluster_updated.cluster.CopyFrom(routing.UpstreamCluster(spec=spec, ordinal=2))
        else:
            changed = rule(chance.randrange(RULES), chance.choice(CLUSTERS))
            made.rule_set_changed.changes.add().updated.CopyFrom(changed)
            made.rule_set_changed.needs_hold = held = what < 0.75
        yield made.SerializeToString()


def rule(number: int, cluster: str) -> routing.RuleSpec:
    match number % 10:
        case 9:
            match = routing.RuleMatch(topic_regex=f"team-{number}-.+")
        case 7 | 8:
            match = routing.RuleMatch(topic_prefix=f"tenant-{number}.")
        case _:
            match = routing.RuleMatch(topic=f"topic-{number}")
    return routing.RuleSpec(rule_id=f"r{number}", match=match, target_cluster=cluster)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_a_router_starts_with_a_long_log(kafka_c1: KafkaCluster, tmp_path: Path, sheet: Sheet) -> None:
    log = PublishedLog(kafka_c1.bootstrap, f"mesh.events-long-{os.getpid()}")
    create_topic(log.bootstrap, log.topic)
    folded_s, state, last = fold_and_publish(log)
    publish_snapshot(log, Snapshot(state, {}, EVENTS - 1, hash_of(last)))
    settings = {
        "NAME": "r1",
        "HOME_BOOTSTRAP_SERVERS": log.bootstrap,
        "EVENTS_TOPIC": log.topic,
        "SNAPSHOTS_TOPIC": log.snapshots_topic,
        "CONTROL_ADDRESSES": "127.0.0.1:1",
    }
    with_one = ServiceProcess("router", free_block(2), tmp_path / "with.log", settings)
    settings["SNAPSHOTS_TOPIC"] += ".none"
    without = ServiceProcess("router", free_block(2), tmp_path / "without.log", settings)
    try:
        rows = [["folding alone, bytes to tables", "", f"{folded_s:.1f}"]]
        rows += [["a router with a snapshot: from its start to /ready", *until_ready(with_one)] for _ in range(STARTS)]
        reading = with_one.metric("caught_up_after_seconds")
        assert with_one.metric("snapshot_position") == EVENTS
        rows.append(["of that, to read the snapshot and the log behind it", f"{reading:.1f}", ""])
        print(*rows, sep="\n")  # the next one takes its time
        rows.append(["a router without a snapshot", *until_ready(without)])
    finally:
        with_one.stop(signal.SIGKILL)
        without.stop(signal.SIGKILL)
        log.delete()
    size = len(state_to_proto(state).SerializeToString())
    table = state.effective
    notes = [
        f"{EVENTS:,} events, {len(table.living):,} living rules; the tables hold {len(table.versions):,} versions and "
        f"{len(table.pasts):,} pasts, {size // 1024:,} KiB before compression",
        f"the goal with a snapshot is under {GOAL_S} s",
    ]
    sheet.add(Table("Start of a router with a long log", ["what", "seconds", "of CPU"], rows, notes))


def fold_and_publish(log: PublishedLog) -> tuple[float, RoutingState, bytes]:
    """Seconds of CPU that folding took, the state, and the last event."""
    producer = Producer({"bootstrap.servers": log.bootstrap, "linger.ms": 20, "enable.idempotence": True})
    folding, took, body = Folding(RoutingState()), 0.0, b""
    bodies = long_log(EVENTS)
    while page := list(islice(bodies, AT_ONCE)):
        for body in page:
            producer.produce(log.topic, body, partition=0)
        assert producer.flush(NOT_BY_THE_CLOCK) == 0
        began = time.thread_time()
        for body in page:
            folding.fold(upcast(body))
        took += time.thread_time() - began
    return took, folding.state, body


def publish_snapshot(log: PublishedLog, snapshot: Snapshot) -> None:
    create_topic(log.bootstrap, log.snapshots_topic)
    producer = Producer({"bootstrap.servers": log.bootstrap})
    for key, value in records_of(snapshot, EVENTS):
        producer.produce(log.snapshots_topic, value, key, partition=0)
    assert producer.flush(NOT_BY_THE_CLOCK) == 0


def until_ready(router: ServiceProcess) -> tuple[str, str]:
    """Seconds from its start, and how much CPU it has taken by then."""
    router.stop(signal.SIGKILL)
    began = time.monotonic()
    router.start()
    wait_until(lambda: router.ready() == "ready", "the router is ready", NOT_BY_THE_CLOCK)
    took, cpu = time.monotonic() - began, psutil.Process(router.pid).cpu_times()
    return f"{took:.1f}", f"{cpu.user + cpu.system:.1f}"
