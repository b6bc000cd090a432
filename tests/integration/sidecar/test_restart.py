"""Consumer instances outlive their sidecar: the process ends, another one begins, the backend goes on."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
import structlog

from mesh.rpc import events
from services.sidecar.control import control_link
from services.sidecar.records import Partition
from services.sidecar.state.state_file import StateFile
from services.sidecar.telemetry import metrics
from tests.fixtures.backend import Backend
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.held_control import HeldControl
from tests.integration.sidecar.world import NOWHERE, Instance, Json, Kafka, SidecarWorld, started, value_of

QUICK = {"restore_timeout_ms": 300}


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldControl]:
    monkeypatch.setattr(control_link, "MAX_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(control_link, "BEAT_SECONDS", 0.2)
    held = HeldControl()
    yield held
    held.stop()


@contextlib.contextmanager
def sidecar_on(folder: Path | str, bootstrap: str, **settings: object) -> Iterator[SidecarWorld]:
    with started(bootstrap, state_dir=str(folder), **{**QUICK, **settings}) as world:
        yield world


def again(instance: Instance, sidecar: SidecarWorld) -> Instance:
    """The same instance, through the sidecar that runs now, on another port."""
    return Instance(sidecar.http, urlsplit(instance.path).path)


def subscriptions(instance: Instance, sidecar: SidecarWorld) -> httpx.Response:
    return sidecar.http.get(f"{again(instance, sidecar).path}/subscriptions")


def kept(folder: Path) -> str:
    return (folder / "sidecar-test" / "instances.json").read_text()


def values(records: list[dict[str, object]]) -> list[object]:
    return [record["value"] for record in records]


def test_instances_go_on_where_they_were_without_control(kafka: Kafka, orders: str, group: str, tmp_path: Path) -> None:
    by_hand = {"topic": orders, "partition": 1}
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        topics = sidecar.create(f"{group}-t", "by.topic", valueFormat="string", responseMinBytes=1)
        pattern = sidecar.create(f"{group}-p", "by pattern")
        assigned = sidecar.create(f"{group}-a", "by-hand", valueFormat="binary")
        idle = sidecar.create(f"{group}-i", "nothing")
        topics.subscribe(orders)
        assert pattern.post("subscriptions", {"topic_pattern": orders[:-1] + "."}).status_code == 204
        assigned.assign(by_hand)
        kafka.write(orders, *({"value": str(n), "partition": n % 2} for n in range(4)))
        for instance, count in ((topics, 4), (pattern, 4), (assigned, 2)):
            instance.read_all(count, timeout=5_000)
            assert instance.commit().status_code == 200
        kafka.write(orders, {"value": "4", "partition": 1})
        assert values(topics.read_all(1)) == ["4"]  # read, and not committed: it comes again
        deleted = sidecar.create(group, "deleted")
        assert deleted.delete().status_code == 204
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        kafka.write(orders, {"value": "5", "partition": 1})
        assert values(again(topics, sidecar).read_all(2, timeout=5_000)) == ["4", "5"]
        assert values(again(pattern, sidecar).read_all(2, timeout=5_000)) == [4, 5]
        assert values(again(assigned, sidecar).read_all(2, timeout=5_000)) == ["NA==", "NQ=="]
        assert subscriptions(topics, sidecar).json() == {"topics": [orders]}
        assert again(assigned, sidecar).assignments() == [by_hand]
        assert subscriptions(idle, sidecar).json() == {"topics": []}
        assert again(deleted, sidecar).delete().status_code == 404
        taken = sidecar.http.post(f"/consumers/{group}-i", json={"name": "nothing"})
        assert taken.json()["code"] == "ERR12202"


def test_what_was_answered_is_on_disk(kafka: Kafka, orders: str, group: str, tmp_path: Path) -> None:
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        instance = sidecar.create(group, "c1")
        assert '"c1"' in kept(tmp_path)
        instance.subscribe(orders)
        assert f'"{orders}"' in kept(tmp_path)
        assert sidecar.http.delete(f"{instance.path}/subscriptions").status_code == 204
        assert f'"{orders}"' not in kept(tmp_path)
        instance.assign({"topic": orders, "partition": 1})
        assert f'"{orders}"' in kept(tmp_path)
        instance.delete()
        assert f'"{orders}"' not in kept(tmp_path)


def test_a_start_does_not_wait_for_kafka(orders: str, kafka: Kafka, group: str, tmp_path: Path) -> None:
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        instance = sidecar.create(group, "c1")
        instance.subscribe(orders)
    with sidecar_on(tmp_path, NOWHERE) as sidecar:
        assert subscriptions(instance, sidecar).json() == {"topics": [orders]}
        assert again(instance, sidecar).get(timeout=100).json() == []
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        sidecar.produce(orders, {"value": 1})
        assert values(again(instance, sidecar).read_all(1, timeout=5_000)) == [1]


def test_more_instances_than_the_bound_come_back_and_no_more_are_made(kafka: Kafka, group: str, tmp_path: Path) -> None:
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        made = [sidecar.create(group, name) for name in ("c1", "c2")]
    with sidecar_on(tmp_path, kafka.bootstrap, max_instances=1) as sidecar:
        for instance in made:
            assert subscriptions(instance, sidecar).status_code == 200
        assert sidecar.http.post(f"/consumers/{group}", json={"name": "c3"}).json()["code"] == "ERR12902"


def test_idleness_goes_on_over_a_restart_but_not_while_no_sidecar_ran(kafka: Kafka, group: str, tmp_path: Path) -> None:
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        instance = sidecar.create(group, "c1")
    file = StateFile(tmp_path / "sidecar-test" / "instances.json")
    os.utime(file.path, (0, 0))  # the machine was off for fifty years
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        assert subscriptions(instance, sidecar).status_code == 200
    state = orjson.loads(file.load() or b"")
    assert 0 <= state["instances"][0]["idleSeconds"] < 300
    state["instances"][0]["idleSeconds"] = 301  # as after five minutes without a call
    file.save(orjson.dumps(state))
    idle = metrics.instance_ends.labels("idle")._value
    ended = idle.get()
    with sidecar_on(tmp_path, kafka.bootstrap):
        wait_until(lambda: idle.get() == ended + 1, "it is closed as idle")
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        assert subscriptions(instance, sidecar).status_code == 404


def test_a_file_that_was_damaged_is_set_aside_and_control_knows_the_instances(
    kafka: Kafka, control: HeldControl, orders: str, group: str, tmp_path: Path
) -> None:
    control.start()
    with sidecar_on(tmp_path, kafka.bootstrap, control_addresses=control.address) as sidecar:
        instance = sidecar.create(group, "c1", valueFormat="binary")
        instance.subscribe(orders)
        wait_until(lambda: any(each.topics for each in control.known.values()), "control knows")
    file = tmp_path / "sidecar-test" / "instances.json"
    file.write_bytes(file.read_bytes()[:-10])
    with (
        structlog.testing.capture_logs() as logs,
        sidecar_on(tmp_path, kafka.bootstrap, control_addresses=control.address) as sidecar,
    ):
        sidecar.produce(orders, {"value": 1})
        assert values(again(instance, sidecar).read_all(1, timeout=5_000)) == ["MQ=="]
    assert [each["file"] for each in logs if each["event"] == "state file is set aside"] == [str(file)]
    assert file.with_name("instances.json.broken").exists()


def test_another_machine_takes_the_instances_from_control(
    kafka: Kafka, control: HeldControl, orders: str, group: str, tmp_path: Path
) -> None:
    """And the first one, when it comes back, finds what became of them meanwhile."""
    control.start()
    first, second = tmp_path / "first", tmp_path / "second"
    with sidecar_on(first, kafka.bootstrap, control_addresses=control.address) as sidecar:
        instance = sidecar.create(group, "c1", autoCommitEnable="true")
        instance.subscribe(orders)
        wait_until(lambda: any(each.topics for each in control.known.values()), "control knows")
    with sidecar_on(second, kafka.bootstrap, control_addresses=control.address) as sidecar:
        sidecar.produce(orders, {"value": 1})
        assert values(again(instance, sidecar).read_all(1, timeout=5_000)) == [1]
        new = sidecar.create(group, "c2")
        assert again(instance, sidecar).delete().status_code == 204
        wait_until(lambda: list(control.known) == [f"instances/{group}.c2"], "control knows")
    with sidecar_on(first, kafka.bootstrap, control_addresses=control.address) as sidecar:
        assert subscriptions(new, sidecar).status_code == 200


def test_an_instance_that_its_backend_uses_through_another_sidecar_by_now_does_not_come_back(
    kafka: Kafka, control: HeldControl, group: str, tmp_path: Path
) -> None:
    with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
        instance = sidecar.create(group, "c1")
    name = f"instances/{group}.c1"
    control.known[name] = events.ConsumerInstance(name=name, group=group, instance_id="c1", sidecar="other")
    control.start()
    with sidecar_on(tmp_path, kafka.bootstrap, control_addresses=control.address) as sidecar:
        assert again(instance, sidecar).delete().status_code == 404
    assert not control.removed


def refused_as_superseded(answer: httpx.Response) -> bool:
    return answer.status_code == 503 and answer.json()["code"] == "ERR12905"


def test_a_second_process_on_the_same_folder_takes_over(kafka: Kafka, orders: str, group: str, tmp_path: Path) -> None:
    with sidecar_on(tmp_path, kafka.bootstrap, health_json=True) as elder:
        instance = elder.create(group, "c1")
        instance.subscribe(orders)
        elder.produce(orders, {"value": 1})
        assert values(instance.read_all(1, timeout=5_000)) == [1]
        instance.commit()
        with sidecar_on(tmp_path, kafka.bootstrap) as younger:
            assert refused_as_superseded(instance.get())
            assert refused_as_superseded(elder.http.post(f"/consumers/{group}", json={"name": "c2"}))
            assert "younger process" in elder.http.get("/health").json()["checks"]["instances"]
            assert elder.produce(orders, {"value": 2}).status_code == 200  # all else goes on
            assert values(again(instance, younger).read_all(1, timeout=5_000)) == [2]
            assert again(instance, younger).commit().status_code == 200
    with sidecar_on(tmp_path, kafka.bootstrap) as third:  # what the elder did at its end harmed nothing
        assert subscriptions(instance, third).json() == {"topics": [orders]}


def test_the_reactive_consumer_of_an_elder_process_ends_too(
    kafka: Kafka, orders: str, group: str, tmp_path: Path
) -> None:
    """It would share the partitions with the younger one, and hear of no order."""
    with Backend().running() as backend:
        settings: Json = {
            "reactive_topics": (orders,), "reactive_group": group, "backend_url": backend.host_url, "health_json": True,
        }  # fmt: skip
        with (
            sidecar_on(tmp_path, kafka.bootstrap, **settings) as elder,
            sidecar_on(tmp_path, kafka.bootstrap, **settings) as younger,
        ):
            wait_until(lambda: len(partitions_of(younger)) == 2, "the younger has all partitions")
            assert [one.session for one in elder.sidecar.reactive.consumers] == [None]
            assert elder.http.get("/health/liveness").status_code == 200
            assert not elder.sidecar.background_failures()
            kafka.write(orders, {"value": b"1"})
            backend.wait_for_records(1)


def partitions_of(world: SidecarWorld) -> set[Partition]:
    """What its reactive consumer reads."""
    sessions = (one.session for one in world.sidecar.reactive.consumers)
    return {partition for session in sessions if session is not None for partition in session.partitions}


def test_a_younger_process_elsewhere_is_given_way_to_when_control_hears_it(
    kafka: Kafka, control: HeldControl, orders: str, group: str, tmp_path: Path
) -> None:
    control.start()
    with sidecar_on(tmp_path, kafka.bootstrap, control_addresses=control.address) as sidecar:
        instance = sidecar.create(group, "c1")
        instance.subscribe(orders)
        wait_until(lambda: control.incarnations, "control hears of the process")
        control.younger = "9999999999999-next"
        wait_until(lambda: refused_as_superseded(instance.get(timeout=100)), "it serves the instance no more")
    assert not control.removed
    assert '"c1"' in kept(tmp_path)


def open_files(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    links: list[Path] = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # other threads close theirs
            links.append(each.readlink())
    return sorted(each.name for each in links if each.is_relative_to(folder))


def test_of_the_state_folder_only_the_lock_is_held_open(kafka: Kafka, group: str, tmp_path: Path) -> None:
    for number in range(3):
        with sidecar_on(tmp_path, kafka.bootstrap) as sidecar:
            sidecar.create(group, f"c{number}")
            assert open_files(tmp_path) == ["lock"]
            assert value_of(metrics.instances) == number + 1
    assert open_files(tmp_path) == []


def test_an_instance_that_has_just_subscribed_anew_is_closed(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    """The client has put the second subscription off until it has left the first."""
    instance = sidecar.create(group, "c1")
    instance.subscribe(orders)
    kafka.write(orders, {"value": "1"})
    instance.read_all(1, timeout=5_000)
    instance.subscribe(orders)
    assert instance.delete().status_code == 204
    assert sidecar.http.get("/health/liveness").text == "OK"
