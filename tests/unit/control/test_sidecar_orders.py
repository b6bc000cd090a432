"""The life of an order: placed, carried out by the sidecar that holds its target, or given up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import events, instances
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.sidecars import orders as sidecar_orders
from services.control.domain.sidecars.orders import KEPT, LONGEST_DETAILS, MAX_OPEN, MAX_OPEN_OF_SIDECAR
from services.control.domain.view import MeshView, apply
from services.control.store.drafts import PAYLOADS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOON - timedelta(days=1)
PAUSE = events.SidecarCommand(pause=events.PauseInstance())
DRAIN = events.SidecarCommand(drain=events.DrainInstance())
HEALTH = events.SidecarCommand(check_health=events.CheckHealth())
ONE = "instances/billing.one"
DONE = events.OrderOutcome(result=events.ORDER_RESULT_DONE, description="paused")
FAILED = events.OrderOutcome(result=events.ORDER_RESULT_FAILED)


class Mesh:
    """A mesh in which s1 holds billing.one, and s2 nothing; orders are 1, 2, 3, ..."""

    def __init__(self) -> None:
        self.view = MeshView()
        self.held: dict[str, events.ConsumerInstance] = {}
        self.given = 0
        self.holds("s1")

    def holds(self, sidecar: str, kind: events.InstanceKind.ValueType = events.INSTANCE_KIND_ACTIVE) -> None:
        self.held[ONE] = events.ConsumerInstance(
            name=ONE, group="billing", instance_id="one", sidecar=sidecar, kind=kind
        )
        for event in sidecar_orders.to_hand_over(self.view.orders, self.held):
            self.says(event)

    def says(self, payload: Message) -> None:
        event = events.Event(position=self.view.position + 1)
        getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
        self.view = apply(self.view, event)

    def orders(self, command: events.SidecarCommand = PAUSE, target: str = ONE, **fields: Any) -> events.SidecarOrder:
        self.given += 1
        request = instances.PlaceOrderRequest(target=target, command=command, **fields)
        at = NOON + timedelta(milliseconds=self.given)
        sidecars = {"s1", "s2"}
        event = sidecar_orders.place(self.view.orders, self.held, sidecars, str(self.given), request, at)
        self.says(event)
        return event.order

    def reports(self, order: events.SidecarOrder, outcome: events.OrderOutcome, sidecar: str = "s1") -> bool:
        """Whether that is the outcome from now on."""
        event = sidecar_orders.reported(self.view.orders, order.name, sidecar, outcome, NOON)
        if event is not None:
            self.says(event)
        return event is not None

    def now(self, order: events.SidecarOrder) -> events.SidecarOrder:
        return self.view.orders.get(order.name)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


def test_an_order_is_for_the_sidecar_that_holds_the_instance(mesh: Mesh) -> None:
    order = mesh.orders()
    assert (order.name, order.target, order.sidecar) == ("orders/1", ONE, "s1")
    assert order.expire_time.ToMilliseconds() - order.create_time.ToMilliseconds() == 30_000
    assert mesh.view.orders.of_sidecar("s1") == [order]
    assert mesh.view.orders.of_sidecar("s2") == []


def test_it_is_open_until_the_sidecar_says_how_it_went(mesh: Mesh) -> None:
    order = mesh.orders()
    assert mesh.reports(order, DONE)
    assert not mesh.view.orders.open
    ended = mesh.now(order)
    assert (ended.outcome.result, ended.outcome.description) == (events.ORDER_RESULT_DONE, "paused")
    assert ended.outcome.time.ToDatetime(UTC) == NOON


def test_the_first_outcome_stands(mesh: Mesh) -> None:
    order = mesh.orders()
    mesh.reports(order, DONE)
    assert not mesh.reports(order, FAILED)
    assert mesh.now(order).outcome.result == events.ORDER_RESULT_DONE


def test_only_the_sidecar_that_has_it_has_a_say(mesh: Mesh) -> None:
    order = mesh.orders()
    with pytest.raises(NotAllowed, match="is for sidecar 's1'; 's2' has no say in it"):
        mesh.reports(order, DONE, sidecar="s2")


def test_open_orders_follow_an_instance_to_another_sidecar(mesh: Mesh) -> None:
    order = mesh.orders()
    mesh.holds("s2")
    assert [each.name for each in mesh.view.orders.of_sidecar("s2")] == [order.name]
    assert mesh.reports(order, DONE, sidecar="s2")


def test_in_logs_of_earlier_releases_they_go_with_the_event_of_the_instance(mesh: Mesh) -> None:
    order = mesh.orders()
    registered = events.ConsumerInstanceRegistered(instance=events.ConsumerInstance(name=ONE, sidecar="s2"))
    event = events.Event(position=mesh.view.position + 1, consumer_instance_registered=registered)
    mesh.view = apply(mesh.view, event)
    assert [each.name for each in mesh.view.orders.of_sidecar("s2")] == [order.name]


def test_orders_that_have_ended_or_are_for_a_sidecar_stay_where_they_are(mesh: Mesh) -> None:
    mesh.reports(mesh.orders(), DONE)
    mesh.orders(command=HEALTH, target="members/s1")
    mesh.holds("s2")
    assert [each.sidecar for each in mesh.view.orders.newest()] == ["s1", "s1"]


def test_orders_stay_the_same_value_while_nothing_is_said_of_them(mesh: Mesh) -> None:
    """So that who follows them sees at a glance that there is nothing new."""
    mesh.orders()
    before = mesh.view.orders
    mesh.holds("s1")
    mesh.says(events.MeshFrozen())
    assert mesh.view.orders is before


@pytest.mark.parametrize("result", [events.ORDER_RESULT_UNSPECIFIED, events.ORDER_RESULT_EXPIRED])
def test_a_sidecar_says_whether_it_did_it(mesh: Mesh, result: events.OrderResult.ValueType) -> None:
    with pytest.raises(InvalidField, match=r"outcome\.result"):
        mesh.reports(mesh.orders(), events.OrderOutcome(result=result))


@pytest.mark.parametrize(
    ("outcome", "description", "details"),
    [
        (FAILED, "it is not said why", ""),
        (events.OrderOutcome(result=events.ORDER_RESULT_DONE, details_json='{"mesh": "INFO"}'), "", '{"mesh": "INFO"}'),
        (events.OrderOutcome(result=events.ORDER_RESULT_DONE, description="d" * 2000), "d" * 1000, ""),
        (events.OrderOutcome(result=events.ORDER_RESULT_DONE, description="a\0b"), "ab", ""),
        (
            events.OrderOutcome(result=events.ORDER_RESULT_DONE, details_json="{"),
            "(its details are left out: they are no JSON)",
            "",
        ),
        (
            events.OrderOutcome(
                result=events.ORDER_RESULT_DONE, description="said", details_json=f'"{"x" * LONGEST_DETAILS}"'
            ),
            "said (its details are left out: 32770 characters are more than 32768)",
            "",
        ),
    ],
)
def test_an_outcome_is_cut_to_size_and_never_lost(
    mesh: Mesh, outcome: events.OrderOutcome, description: str, details: str
) -> None:
    order = mesh.orders()
    mesh.reports(order, outcome)
    assert (mesh.now(order).outcome.description, mesh.now(order).outcome.details_json) == (description, details)


# When nobody carries it out


def overdue(mesh: Mesh, seconds: float, leading_since: datetime = LONG_AGO, *, heard: bool = True) -> list[str]:
    """So many seconds after noon."""
    now = NOON + timedelta(seconds=seconds)
    return [each.name for each in sidecar_orders.overdue(mesh.view.orders, now, leading_since, lambda _: heard)]


def test_a_sidecar_may_begin_until_the_order_expires_and_has_the_time_to_carry_it_out(mesh: Mesh) -> None:
    order = mesh.orders(expire_after=timedelta(seconds=1))
    assert sidecar_orders.can_begin(order, NOON + timedelta(seconds=1))
    assert not sidecar_orders.can_begin(order, NOON + timedelta(seconds=1.1))
    assert overdue(mesh, 35.9) == []
    assert overdue(mesh, 36.1) == [order.name]


def test_a_drain_has_its_own_time_beyond_that(mesh: Mesh) -> None:
    order = mesh.orders(DRAIN, expire_after=timedelta(seconds=1))
    assert durations.whole_ms(order.command.drain.timeout) == 30_000  # what was left unsaid is said in the log
    assert overdue(mesh, 65.9) == []
    assert overdue(mesh, 66.1) == [order.name]


def test_a_sidecar_that_is_silent_is_not_waited_for_so_long(mesh: Mesh) -> None:
    order = mesh.orders(DRAIN, expire_after=timedelta(seconds=1))
    assert overdue(mesh, 5.9, heard=False) == []
    assert overdue(mesh, 6.1, heard=False) == [order.name]


def test_after_control_was_away_sidecars_have_the_time_to_come_back(mesh: Mesh) -> None:
    order = mesh.orders(expire_after=timedelta(seconds=1))
    back = NOON + timedelta(seconds=600)
    assert overdue(mesh, 629, leading_since=back) == []
    assert overdue(mesh, 630, leading_since=back) == [order.name]


@pytest.mark.parametrize(("heard", "says"), [(False, "was not there by"), (True, "did not say by")])
def test_what_is_given_up_says_whose_fault_it_was(mesh: Mesh, heard: bool, says: str) -> None:
    order = mesh.orders()
    mesh.says(sidecar_orders.given_up(order, NOON, heard=heard))
    outcome = mesh.now(order).outcome
    assert outcome.result == events.ORDER_RESULT_EXPIRED
    assert f"sidecar 's1' {'is there, and ' if heard else ''}{says} 2026-01-01 12:00:30 UTC" in outcome.description
    assert not mesh.reports(order, DONE)


# What is refused


def seek(**fields: Any) -> events.SidecarCommand:
    return events.SidecarCommand(seek=events.SeekInstance(**fields))


def levels(**said: str) -> events.SidecarCommand:
    return events.SidecarCommand(set_log_levels=events.SetLogLevels(levels=said))


@pytest.mark.parametrize(
    ("command", "target", "place"),
    [
        (PAUSE, "", "target"),
        (PAUSE, "members/", "target"),
        (PAUSE, "clusters/c1", "target"),
        (PAUSE, "members/s1", "command"),
        (HEALTH, ONE, "command"),
        (events.SidecarCommand(), ONE, "command"),
        (seek(), ONE, "command.seek"),
        (seek(offset=5), ONE, "command.seek.topic"),
        (seek(offset=5, topic="orders"), ONE, "command.seek.partition"),
        (seek(offset=-1, topic="orders", partition=0), ONE, "command.seek.offset"),
        (seek(first=True, partition=0), ONE, "command.seek.topic"),
        (seek(first=True, topic="orders", partition=-1), ONE, "command.seek.partition"),
        (seek(first=False), ONE, "command.seek.first"),
        (seek(last=True, topic="t" * 256), ONE, "command.seek.topic"),
        (seek(time={"seconds": -1}), ONE, "command.seek.time"),
        (
            events.SidecarCommand(drain=events.DrainInstance(timeout=durations.of_ms(600_001))),
            ONE,
            "command.drain.timeout",
        ),
        (levels(), "members/s1", "command.set_log_levels.levels"),
        (levels(mesh="loud"), "members/s1", "command.set_log_levels.levels[mesh]"),
        (levels(**{"": "INFO"}), "members/s1", "command.set_log_levels.levels"),
    ],
)
def test_what_can_not_be_ordered(mesh: Mesh, command: events.SidecarCommand, target: str, place: str) -> None:
    with pytest.raises(InvalidField) as refused:
        mesh.orders(command, target)
    assert refused.value.field == place


@pytest.mark.parametrize(
    "command",
    [
        seek(offset=5, topic="orders", partition=0),
        seek(first=True),
        seek(last=True, topic="orders"),
        seek(time={"seconds": 1_800_000_000}, topic="orders", partition=3),
    ],
)
def test_where_an_instance_can_be_told_to_go_on(mesh: Mesh, command: events.SidecarCommand) -> None:
    assert mesh.orders(command).command == command


@pytest.mark.parametrize(
    ("field", "said"),
    [("wait", -1), ("wait", 60_001), ("expire_after", -1), ("expire_after", 86_400_001)],
)
def test_times_have_bounds(mesh: Mesh, field: str, said: int) -> None:
    with pytest.raises(InvalidField) as refused:
        mesh.orders(PAUSE, ONE, **{field: timedelta(milliseconds=said)})
    assert refused.value.field == field


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(Unknown, match=r"no sidecar holds an instance 'instances/billing\.two'"):
        Mesh().orders(target="instances/billing.two")
    with pytest.raises(Unknown, match=r"no sidecar 's9' has been heard of \(known: s1, s2\)"):
        Mesh().orders(HEALTH, "members/s9")


def test_what_is_open_is_bounded_for_each_sidecar_and_for_all(mesh: Mesh) -> None:
    for _ in range(MAX_OPEN_OF_SIDECAR):
        mesh.orders()
    with pytest.raises(NotAllowed, match="100 orders are open for sidecar 's1'"):
        mesh.orders()
    assert mesh.orders(HEALTH, "members/s2").sidecar == "s2"
    crowd = {f"orders/x{number}": events.SidecarOrder(sidecar=f"s{number}") for number in range(MAX_OPEN)}
    with pytest.raises(NotAllowed, match="1000 orders are open, and no more"):
        request = instances.PlaceOrderRequest(target="members/s0", command=HEALTH)
        sidecar_orders.place(sidecar_orders.Orders(crowd), {}, {"s0"}, "1", request, NOON)


# What is remembered


def test_the_last_thousand_outcomes_are_remembered_the_newest_first(mesh: Mesh) -> None:
    for _ in range(KEPT + 2):
        mesh.reports(mesh.orders(), DONE)
    last = mesh.orders()
    names = [order.name for order in mesh.view.orders.newest()]
    assert (names[0], names[1], names[-1], len(names)) == (last.name, f"orders/{KEPT + 2}", "orders/3", KEPT + 1)
    with pytest.raises(Unknown, match="so old that only the log tells of it"):
        mesh.view.orders.get("orders/2")


def test_orders_are_listed_by_target_and_by_whether_they_are_open(mesh: Mesh) -> None:
    first, second = mesh.orders(), mesh.orders()
    health = mesh.orders(HEALTH, "members/s2")
    mesh.reports(first, DONE)
    known = mesh.view.orders
    assert [each.name for each in known.newest_for(ONE)] == [second.name, first.name]
    assert [each.name for each in known.newest(open_only=True)] == [health.name, second.name]


# How a reactive consumer delivers


def change(
    mask: str = "", topics: tuple[str, ...] = (), topic_pattern: str = "", **delivery: Any
) -> events.SidecarCommand:
    """A command that names what it changes, and `mask` beside it."""
    said = events.ConfigureInstance(topics=topics, topic_pattern=topic_pattern)
    if delivery or mask:
        said.delivery.CopyFrom(events.DeliverySettings(**delivery))
        said.delivery_mask.paths.extend([*delivery, *mask.split()])
    return events.SidecarCommand(configure=said)


@pytest.mark.parametrize(
    "command",
    [
        change(topics=("orders", "returns")),
        change(topic_pattern="o.*"),
        change(backend_url="https://[::1]:8443/", backend_path="/kafka/records"),
        change(max_concurrency=1, max_batch_records=1, max_batch_bytes=1, linger_ms=0),
        change("order_by_key filter routes"),
        change(filter="headers.kind == 'order'", routes=[events.DeliveryRoute(when="value.total > 5", path="/large")]),
    ],
)
def test_a_reactive_consumer_can_be_told_to_deliver_otherwise(mesh: Mesh, command: events.SidecarCommand) -> None:
    mesh.holds("s1", events.INSTANCE_KIND_REACTIVE)
    assert mesh.orders(command).command == command


def test_no_other_consumer_can(mesh: Mesh) -> None:
    with pytest.raises(NotAllowed, match="is no reactive consumer"):
        mesh.orders(change(max_concurrency=5))


@pytest.mark.parametrize(
    ("command", "field", "says"),
    [
        (change(), "", "changes nothing"),
        (change(topics=("a",), topic_pattern="b"), ".topic_pattern", "stands beside topics"),
        (change(topics=("",)), ".topics[0]", "needs 1 to 255 characters"),
        (change("color"), ".delivery_mask", "'color' is no field of a delivery"),
        (change(backend_url="ftp://x"), ".delivery.backend_url", "is no address of a backend"),
        (change(backend_url="http://host/path"), ".delivery.backend_url", "no path"),
        (change("backend_url"), ".delivery.backend_url", "'' is no address"),
        (change(backend_path="orders"), ".delivery.backend_path", "begins with /"),
        (change("max_concurrency"), ".delivery.max_concurrency", "0 is not from 1 to 1000"),
        (change(linger_ms=-1), ".delivery.linger_ms", "-1 is not from 0 to 60000"),
        (change(filter="value ="), ".delivery.filter", "value ="),
        (change(routes=[events.DeliveryRoute(path="/x")]), ".delivery.routes[0].when", "is empty"),
        (change(routes=[events.DeliveryRoute(when="true")]), ".delivery.routes[0].path", "is no path"),
        (
            events.SidecarCommand(configure=events.ConfigureInstance(delivery=events.DeliverySettings(linger_ms=1))),
            ".delivery_mask",
            "does not name linger_ms",
        ),
    ],
)
def test_a_delivery_that_cannot_be_is_refused_by_its_field(
    mesh: Mesh, command: events.SidecarCommand, field: str, says: str
) -> None:
    mesh.holds("s1", events.INSTANCE_KIND_REACTIVE)
    with pytest.raises(InvalidField) as refused:
        mesh.orders(command)
    assert refused.value.field == f"command.configure{field}"
    assert says in refused.value.description


def test_an_address_with_a_password_is_refused_and_not_repeated(mesh: Mesh) -> None:
    mesh.holds("s1", events.INSTANCE_KIND_REACTIVE)
    with pytest.raises(InvalidField) as refused:
        mesh.orders(change(backend_url="http://me:secret@host:1"))
    assert "secret" not in str(refused.value)
