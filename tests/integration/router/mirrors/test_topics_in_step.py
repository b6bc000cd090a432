"""Topics of the target are made like those of the source, and stay so.

Records of these tests are an hour old (`FIRST_TIME`): a shorter retention would delete them.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
)

from services.router.forwarding.orders import RunRule
from tests.fixtures.record_rules import WITHIN_S, Side, Workers, ends, mirror
from tests.fixtures.waiting import wait_until


def settings(side: Side, topic: str) -> dict[str, str]:
    [future] = side.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries: dict[str, Any] = future.result(WITHIN_S)
    return {
        entry.name: entry.value
        for entry in entries.values()
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def change(side: Side, topic: str, name: str, value: str | None) -> None:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=kind)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    [future] = side.admin.incremental_alter_configs([resource]).values()
    future.result(WITHIN_S)


def test_partitions_and_settings_follow_the_source(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic, 2, cleanup_policy="compact", retention_ms="172800000", min_insync_replicas="1")
    c2.will_have(topic)
    workers.run(RunRule(mirror("apples", topic), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert c2.partitions(topic) == 2
    assert settings(c2, topic) == {"cleanup.policy": "compact", "retention.ms": "172800000"}

    [future] = c1.admin.create_partitions([NewPartitions(topic, 3)]).values()
    future.result(WITHIN_S)
    change(c1, topic, "retention.ms", "86400000")
    change(c1, topic, "cleanup.policy", None)
    wait_until(lambda: c1.partitions(topic) == 3, "the source has three")
    c1.write(topic, [(2, b"in the new one")])
    workers.wait_until_caught_up("apples", ends(c1, topic))
    wait_until(lambda: settings(c2, topic) == {"retention.ms": "86400000"}, "the settings have followed")
    assert [(each.partition, each.value) for each in c2.read(topic)] == [(2, b"in the new one")]


def test_a_rule_may_leave_topics_alone(c1: Side, c2: Side, workers: Workers, topic: str) -> None:
    c1.create(topic, 1, retention_ms="172800000")
    c2.create(topic, 2, retention_ms="86400000")
    c1.write(topic, [(0, b"1")])
    workers.run(RunRule(mirror("apples", topic, keep_topics_in_step=False), 12, 11))
    workers.wait_until_caught_up("apples", ends(c1, topic))
    assert settings(c2, topic) == {"retention.ms": "86400000"}
    assert [each.value for each in c2.read(topic)] == [b"1"]
