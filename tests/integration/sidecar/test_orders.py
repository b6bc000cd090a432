"""What operators order by way of control is carried out, once, and its outcome told. Control is held by the test."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh import durations
from mesh.rpc import events, instances
from services.sidecar.control import control_link, order_follower
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.held_control import HeldControl
from tests.integration.sidecar.world import Instance, Json, Kafka, SidecarWorld, started

DONE, FAILED = events.ORDER_RESULT_DONE, events.ORDER_RESULT_FAILED
PAUSE = events.SidecarCommand(pause=events.PauseInstance())
RESUME = events.SidecarCommand(resume=events.ResumeInstance())
REMOVE = events.SidecarCommand(remove=events.RemoveInstance())
FIRST = events.SidecarCommand(seek=events.SeekInstance(first=True))
LAST = events.SidecarCommand(seek=events.SeekInstance(last=True))


def drain(timeout_ms: int) -> events.SidecarCommand:
    return events.SidecarCommand(drain=events.DrainInstance(timeout=durations.of_ms(timeout_ms)))


@pytest.fixture(scope="module")
def control() -> Iterator[HeldControl]:
    held = HeldControl()
    held.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_link, "MAX_PAUSE_SECONDS", 0.2)
        patch.setattr(control_link, "BEAT_SECONDS", 0.2)
        patch.setattr(order_follower, "MAX_PAUSE_SECONDS", 0.2)
        yield held
    held.stop()


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster, control: HeldControl) -> Iterator[SidecarWorld]:
    with started(kafka_c1.bootstrap, control_addresses=control.address, health_json=True) as world:
        yield world


@pytest.fixture
def instance(sidecar: SidecarWorld, control: HeldControl, kafka: Kafka, orders: str, group: str) -> Iterator[Instance]:
    """It has read and committed a, and read b; control has heard of it."""
    made = sidecar.create(group, "c1", valueFormat="string")
    made.subscribe(orders)
    for value in ("a", "b"):
        kafka.write(orders, {"value": value, "partition": 0})
        assert values(made.read_all(1, timeout=5_000)) == [value]
        if value == "a":
            made.commit()
    name = f"instances/{group}.c1"
    wait_until(lambda: name in control.known and name in control.statuses, "control hears of the instance")
    yield made
    made.delete()


def values(records: list[Json]) -> list[object]:
    return [record["value"] for record in records]


def said(outcome: events.OrderOutcome) -> tuple[int, str]:
    return outcome.result, outcome.description


def test_pause_and_resume(
    sidecar: SidecarWorld, control: HeldControl, kafka: Kafka, instance: Instance, orders: str, group: str
) -> None:
    target = f"instances/{group}.c1"
    outcome = control.order(f"pause-{group}", target, PAUSE)
    assert said(outcome) == (DONE, "it gives nothing until it is resumed, and stays in its group")
    kafka.write(orders, {"value": "c", "partition": 0})
    assert instance.read(timeout=200) == []
    wait_until(lambda: control.known[target].paused, "control knows that it is paused")
    wait_until(
        lambda: control.statuses[target].state == instances.INSTANCE_STATE_PAUSED, "its state is in the next beat"
    )
    assert said(control.order(f"resume-{group}", target, RESUME)) == (DONE, "it gives records; it was paused")
    assert values(instance.read_all(1, timeout=5_000)) == ["c"]
    wait_until(lambda: not control.known[target].paused, "control knows that it is not")


def test_a_beat_tells_where_each_instance_is(
    sidecar: SidecarWorld, control: HeldControl, instance: Instance, orders: str, group: str
) -> None:
    def place() -> tuple[int, int] | None:
        for one in control.statuses[f"instances/{group}.c1"].partitions:
            if (one.topic, one.partition) == (orders, 0):
                return one.position, one.committed
        return None

    wait_until(lambda: place() == (2, 1), "position and commit are told")


def test_seek(control: HeldControl, kafka: Kafka, instance: Instance, orders: str, group: str) -> None:
    target = f"instances/{group}.c1"
    outcome = control.order(f"first-{group}", target, FIRST)
    assert said(outcome) == (DONE, "it goes on elsewhere in 2 partitions")
    assert {(one["partition"], one["offset"]) for one in json.loads(outcome.details_json)} == {(0, 0), (1, 0)}
    assert kafka.committed(group, orders, 0) == 0  # so that a restart does not undo it
    assert values(instance.read_all(2, timeout=5_000)) == ["a", "b"]
    one = events.SidecarCommand(seek=events.SeekInstance(topic=orders, partition=0, offset=1))
    assert said(control.order(f"one-{group}", target, one)) == (DONE, "it goes on elsewhere in 1 partition")
    assert values(instance.read_all(1, timeout=5_000)) == ["b"]
    assert control.order(f"last-{group}", target, LAST).result == DONE
    kafka.write(orders, {"value": "c", "partition": 0})
    assert values(instance.read_all(1, timeout=5_000)) == ["c"]
    elsewhere = events.SidecarCommand(seek=events.SeekInstance(topic="pears", first=True))
    outcome = control.order(f"nowhere-{group}", target, elsewhere)
    assert outcome.result == FAILED
    assert "pears" in outcome.description


def test_a_drain_waits_for_the_backends_commit(
    control: HeldControl, kafka: Kafka, instance: Instance, orders: str, group: str
) -> None:
    target = f"instances/{group}.c1"
    name = control.place(f"drain-{group}", target, drain(30_000))
    wait_until(lambda: control.statuses[target].state == instances.INSTANCE_STATE_DRAINING, "it waits for its backend")
    assert name not in control.outcomes
    instance.commit()
    wait_until(lambda: name in control.outcomes, "it is drained")
    committed = "all that it gave was committed; it has left its group until it is resumed"
    assert said(control.outcomes[name][0]) == (DONE, committed)
    wait_until(lambda: instance.assignments() == [], "it is out of its group")
    wait_until(lambda: control.known[target].drained, "control knows that it is drained")
    kafka.write(orders, {"value": "c", "partition": 0})
    assert control.order(f"resume-{group}", target, RESUME).result == DONE
    assert values(instance.read_all(1, timeout=5_000)) == ["c"]


def test_a_drain_ends_after_its_time_and_another_order_ends_it(
    control: HeldControl, instance: Instance, group: str
) -> None:
    target = f"instances/{group}.c1"
    endless = control.place(f"endless-{group}", target, drain(600_000))
    wait_until(lambda: control.statuses[target].state == instances.INSTANCE_STATE_DRAINING, "it drains")
    assert control.order(f"resume-{group}", target, RESUME).result == DONE
    outcome = control.order(f"short-{group}", target, drain(100))  # the first one may not have looked yet
    assert outcome.result == DONE
    assert "not all that it gave was committed within 0.1 s" in outcome.description
    wait_until(lambda: endless in control.outcomes, "the first drain has an outcome of its own")
    assert control.outcomes[endless][0].result == FAILED
    assert "got another order while it drained" in control.outcomes[endless][0].description


def test_remove(sidecar: SidecarWorld, control: HeldControl, group: str) -> None:
    instance = sidecar.create(group, "c1")
    target = f"instances/{group}.c1"
    wait_until(lambda: target in control.known, "it is registered")
    assert said(control.order(f"remove-{group}", target, REMOVE)) == (DONE, "it is closed and forgotten")
    assert instance.delete().status_code == 404
    wait_until(lambda: control.removed.get(target) == "removed by an operator", "control knows why")
    outcome = control.order(f"again-{group}", target, REMOVE)
    assert said(outcome) == (DONE, "there is no such instance any more")
    assert said(control.order(f"pause-{group}", target, PAUSE)) == (
        FAILED,
        f"this sidecar holds no instance {target!r}",
    )


def test_log_levels(sidecar: SidecarWorld, control: HeldControl, group: str) -> None:
    name = f"services.{group}"
    loud = events.SidecarCommand(set_log_levels=events.SetLogLevels(levels={name: "DEBUG"}))
    outcome = control.order(f"set-{group}", "members/sidecar-test", loud)
    assert (outcome.result, json.loads(outcome.details_json)[name]) == (DONE, "DEBUG")
    assert logging.getLogger(name).isEnabledFor(logging.DEBUG)
    get = events.SidecarCommand(get_log_levels=events.GetLogLevels())
    assert json.loads(control.order(f"get-{group}", "members/sidecar-test", get).details_json)[name] == "DEBUG"
    wrong = events.SidecarCommand(set_log_levels=events.SetLogLevels(levels={name: "LOUD"}))
    assert control.order(f"wrong-{group}", "members/sidecar-test", wrong).result == FAILED


def test_health_and_information(sidecar: SidecarWorld, control: HeldControl, group: str) -> None:
    health = control.order(f"h-{group}", "members/x", events.SidecarCommand(check_health=events.CheckHealth()))
    assert (said(health), json.loads(health.details_json)["kafka"]) == ((DONE, "OK"), "OK")
    info = control.order(f"i-{group}", "members/x", events.SidecarCommand(get_info=events.GetInfo()))
    assert info.result == DONE
    assert json.loads(info.details_json)["component"]["sidecar"]["name"] == "sidecar-test"


def test_an_order_that_this_release_does_not_know_has_an_outcome(
    sidecar: SidecarWorld, control: HeldControl, group: str
) -> None:
    outcome = control.order(f"new-{group}", "members/sidecar-test", events.SidecarCommand())
    assert outcome.result == FAILED
    assert "this release of the sidecar does not know such an order" in outcome.description


def test_an_outcome_that_control_does_not_take_is_told_again(
    sidecar: SidecarWorld, control: HeldControl, group: str
) -> None:
    control.takes_reports = False
    name = control.place(f"get-{group}", "members/x", events.SidecarCommand(get_log_levels=events.GetLogLevels()))
    wait_until(lambda: name in control.refused_reports, "it was told in vain")
    control.takes_reports = True
    wait_until(lambda: name in control.outcomes, "it is told again")


def test_an_order_is_carried_out_once_though_control_asks_again_after_a_restart(
    kafka_c1: KafkaCluster, orders: str, group: str, tmp_path: Path
) -> None:
    """And what was ordered outlives the process."""
    control = HeldControl()
    control.start()
    settings = {"control_addresses": control.address, "state_dir": str(tmp_path)}
    target = f"instances/{group}.c1"
    with started(kafka_c1.bootstrap, **settings) as sidecar:
        made = sidecar.create(group, "c1")
        made.subscribe(orders)
        control.takes_reports = False
        order = control.place("pause", target, PAUSE)
        wait_until(lambda: order in control.refused_reports, "it was carried out; control does not hear it")
    control.takes_reports = True
    with started(kafka_c1.bootstrap, **settings) as sidecar:
        wait_until(lambda: order in control.outcomes, "control hears it")
        first = control.outcomes[order][0]
        assert first == control.refused_reports[order]  # to the time: it is the same outcome
        wait_until(lambda: target in control.statuses, "the next beat")
        wait_until(lambda: control.statuses[target].state == instances.INSTANCE_STATE_PAUSED, "it is paused still")
        control.stop()
        control.start()  # all open orders are given again, and those that ended are not
        assert control.order("resume", target, RESUME).result == DONE
    assert len(control.outcomes[order]) == 1
    control.stop()
