"""How far topics under standby are acknowledged, as gateways note and report it."""

from __future__ import annotations

from mesh.rpc import acknowledgements
from services.gateway.requests.records.acknowledged import AcknowledgedLogs


def policy(revision: int, *logs: tuple[str, str, int]) -> acknowledgements.StandbyPolicy:
    listed = (
        acknowledgements.StandbyLog(topic=topic, cluster_name=cluster, since_revision=since)
        for topic, cluster, since in logs
    )
    return acknowledgements.StandbyPolicy(logs=listed, revision=revision)


def ends(logs: AcknowledgedLogs, *, everything: bool = False) -> dict[str, dict[int, int]]:
    return {
        log.topic: {each.partition: each.end for each in log.partitions} for log in logs.report(everything=everything)
    }


def test_the_highest_end_is_reported_once_and_all_of_them_to_another_router() -> None:
    logs = AcknowledgedLogs()
    logs.follow(policy(3, ("apples", "c1", 3), ("pears", "c2", 2)))
    apples = logs.of("apples", "c1")
    assert apples is not None
    assert logs.of("apples", "c2") is None
    assert logs.of("figs", "c1") is None
    assert logs.clusters() == {"c1", "c2"}
    for partition, end in ((0, 5), (0, 3), (1, 7)):
        apples.note(partition, end)
    assert ends(logs) == {"apples": {0: 5, 1: 7}}
    assert ends(logs) == {}
    apples.note(0, 4)
    assert ends(logs) == {}
    apples.note(0, 6)
    assert ends(logs) == {"apples": {0: 6}}
    assert ends(logs, everything=True) == {"apples": {0: 6, 1: 7}}


def test_a_topic_keeps_its_ends_until_it_has_another_copy() -> None:
    logs = AcknowledgedLogs()
    logs.follow(policy(3, ("apples", "c1", 3)))
    apples = logs.of("apples", "c1")
    assert apples is not None
    logs.follow(policy(4, ("apples", "c1", 3), ("pears", "c1", 4)))
    assert logs.of("apples", "c1") is apples
    logs.follow(policy(5, ("pears", "c1", 4)))
    assert logs.of("apples", "c1") is None
    logs.follow(policy(6, ("apples", "c1", 6), ("pears", "c1", 4)))
    assert logs.of("apples", "c1") is not apples
