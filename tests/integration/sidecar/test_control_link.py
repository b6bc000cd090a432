"""What control hears of a sidecar, and that its absence harms nobody. Control is a server that the test holds."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from mesh.rpc import admin, events, subscriptions
from services.sidecar.control import control_link
from services.sidecar.telemetry import metrics
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.held_control import HeldControl
from tests.integration.sidecar.world import Kafka, SidecarWorld, started, value_of


@pytest.fixture
def control() -> Iterator[HeldControl]:
    held = HeldControl()
    yield held
    held.stop()


@pytest.fixture
def sidecar(kafka: Kafka, control: HeldControl, monkeypatch: pytest.MonkeyPatch) -> Iterator[SidecarWorld]:
    monkeypatch.setattr(control_link, "MAX_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(control_link, "BEAT_SECONDS", 0.2)
    with started(kafka.bootstrap, control_addresses=control.address, restore_timeout_ms=100) as world:
        yield world


def test_control_hears_of_the_sidecar_and_its_instances(
    sidecar: SidecarWorld, control: HeldControl, orders: str, group: str
) -> None:
    control.start()
    instance = sidecar.create(group, "c1", keyFormat="string", valueFormat="binary")
    name = f"instances/{group}.c1"
    wait_until(lambda: name in control.known, "the instance is registered")
    known = control.known[name]
    assert (known.sidecar, known.key_format, known.value_format) == ("sidecar-test", "string", "binary")
    instance.subscribe(orders)
    wait_until(lambda: list(control.known[name].topics) == [orders], "its topics are known")
    instance.delete()
    wait_until(lambda: control.removed.get(name) == "deleted by the backend", "its end is known")
    assert {(member.name, member.kind) for member in control.members} == {
        ("members/sidecar-test", admin.MEMBER_KIND_SIDECAR)
    }
    assert control.actors == {"sidecar-test"}  # who decided, in control's history


def test_a_control_with_many_sidecars_hears_fewer_beats(
    sidecar: SidecarWorld, control: HeldControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar waits as long as control says, but never so long that control takes the sidecar for gone."""
    monkeypatch.setattr(control_link, "LONGEST_BEAT_SECONDS", 1.0)
    control.next_beat_ms = 60_000
    control.start()

    def pauses() -> list[float]:
        return [after - before for before, after in pairwise(control.beat_times)]

    wait_until(lambda: sum(each >= 0.9 for each in pauses()) >= 3, "three beats after a second each")
    assert sum(each < 0.9 for each in pauses()) <= 2, "only the start of control makes the sidecar beat at once"


def test_without_control_all_works_and_it_hears_everything_later(
    sidecar: SidecarWorld, control: HeldControl, orders: str, group: str
) -> None:
    gone, kept = sidecar.create(group, "gone"), sidecar.create(group, "kept")
    gone.delete()
    kept.subscribe(orders)
    sidecar.produce(orders, {"value": 1})
    assert [record["value"] for record in kept.read()] == [1]
    assert value_of(metrics.control_up) == 0
    control.start()
    wait_until(lambda: list(control.known) == [f"instances/{group}.kept"], "what is there is known")
    wait_until(lambda: list(control.removed) == [f"instances/{group}.gone"], "what is not there is known")
    wait_until(lambda: value_of(metrics.control_up) == 1, "control is known to hear")


def test_a_control_that_forgot_hears_it_again(sidecar: SidecarWorld, control: HeldControl, group: str) -> None:
    control.start()
    sidecar.create(group, "c1")
    wait_until(lambda: control.known, "the instance is registered")
    control.stop()
    control.known.clear()
    wait_until(lambda: value_of(metrics.control_up) == 0, "the loss is noticed")
    control.start()
    wait_until(lambda: control.known, "the instance is registered again")


def test_what_another_process_of_this_name_left_comes_back_when_control_can_say_it(
    control: HeldControl, sidecar: SidecarWorld, orders: str, group: str
) -> None:
    for name, holder in (("c1", "sidecar-test"), ("c2", "other")):
        control.known[f"instances/{group}.{name}"] = events.ConsumerInstance(
            name=f"instances/{group}.{name}",
            group=group,
            instance_id=name,
            sidecar=holder,
            topics=[orders],
            min_bytes=-1,
        )
    control.start()
    path = f"/consumers/{group}/instances/{{}}/subscriptions"
    wait_until(lambda: sidecar.http.get(path.format("c1")).json() == {"topics": [orders]}, "its instance is there")
    assert sidecar.http.get(path.format("c2")).status_code == 404
    assert not control.removed


def test_what_control_remembers_after_an_outage_and_is_no_more_is_removed(
    control: HeldControl, sidecar: SidecarWorld
) -> None:
    control.start()
    wait_until(lambda: value_of(metrics.control_up) == 1, "control hears")
    control.stop()
    wait_until(lambda: value_of(metrics.control_up) == 0, "the loss is noticed")
    old = events.ConsumerInstance(name="instances/g.old", group="g", instance_id="old", sidecar="sidecar-test")
    control.known[old.name] = old
    control.start()
    wait_until(lambda: control.removed == {old.name: "its sidecar does not hold it"}, "it is forgotten")


def test_an_instance_that_control_refuses_does_not_stand_before_the_others(
    sidecar: SidecarWorld, control: HeldControl, group: str
) -> None:
    control.refused = "c1"
    control.start()
    for name in ("c1", "c2"):
        sidecar.create(group, name)
    wait_until(lambda: list(control.known) == [f"instances/{group}.c2"], "the other instance is registered")
    wait_until(lambda: value_of(metrics.control_up) == 1, "control is known to hear")


def test_the_end_of_the_sidecar_is_not_the_end_of_its_instances(kafka: Kafka, control: HeldControl, group: str) -> None:
    control.start()
    with started(kafka.bootstrap, control_addresses=control.address) as sidecar:
        sidecar.create(group, "c1")
        wait_until(lambda: control.known, "the instance is registered")
    assert (list(control.known), control.removed) == ([f"instances/{group}.c1"], {})


def test_an_earlier_release_of_control_leaves_subscriptions_as_they_are_and_a_later_one_is_not_misread(
    sidecar: SidecarWorld, control: HeldControl, orders: str, group: str
) -> None:
    spec = subscriptions.SubscriptionSpec(topics=[orders], group=group)
    later = subscriptions.SubscriptionSpec.FromString(spec.SerializeToString() + b"\xfa\x3f\x03new")
    control.subscriptions = subscriptions.SubscriptionsOfSidecar(
        digest="one",
        subscriptions=[
            subscriptions.DeclaredSubscription(name="known", spec=spec),
            subscriptions.DeclaredSubscription(name="later", spec=later),
        ],
    )
    control.start()
    wait_until(lambda: set(control.reports) == {"known", "later"}, "the sidecar tells of both")
    wait_until(lambda: not control.reports["known"].problem, "the consumer has joined")
    assert control.reports["later"].state == subscriptions.SUBSCRIPTION_STATE_REFUSED
    assert "members that this release does not know" in control.reports["later"].problem
    control.subscriptions = None
    beats = len(control.members)
    wait_until(lambda: len(control.members) > beats + 3, "the sidecar beats on")
    assert control.reports["known"].state == subscriptions.SUBSCRIPTION_STATE_RUNNING
    control.subscriptions = subscriptions.SubscriptionsOfSidecar(digest="none")
    wait_until(lambda: not control.reports, "the sidecar has none any more")
    wait_until(lambda: f"instances/{group}.sidecar-test-known" in control.removed, "the end of the consumer is known")
