"""`meshctl instances` and `meshctl sidecars`: what is typed, what control is asked, what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from google.protobuf.json_format import MessageToDict

from mesh.rpc import admin, events
from mesh.rpc import instances as instances_pb
from meshctl import instances, wording
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
ONE = events.ConsumerInstance(
    name="instances/billing.one", group="billing", instance_id="one", sidecar="s1", topics=["orders"],
    key_format="json", auto_commit=True, offset_reset="earliest", group_instance_id="till-1",
)  # fmt: skip
READING = instances_pb.InstanceStatus(
    name=ONE.name,
    state=instances_pb.INSTANCE_STATE_READING,
    partitions=[
        instances_pb.InstancePartition(topic="orders", partition=0, position=5, committed=-1, lag=2),
        instances_pb.InstancePartition(topic="orders", partition=1, position=7, committed=7, lag=40),
    ],
)


def order(
    result: events.OrderResult.ValueType = events.ORDER_RESULT_DONE, target: str = ONE.name, **fields: Any
) -> Callable[[Any], events.SidecarOrder]:
    """What control makes of a PlaceOrder that comes to this end; ORDER_RESULT_UNSPECIFIED: that is still open."""

    def answer(request: instances_pb.PlaceOrderRequest) -> events.SidecarOrder:
        made = events.SidecarOrder(name="orders/3f9a", target=target, sidecar="s1", command=request.command)
        made.expire_time.FromSeconds(1_800_000_000)
        if result:
            made.outcome.CopyFrom(events.OrderOutcome(result=result, **fields))
        return made

    return answer


def asked(control: ScriptedControl, method: str) -> Any:
    [request] = control.requests(method)
    return request


def lines(result: Result) -> list[list[str]]:
    """Of a table: the cells of each line, as far as blanks tell them apart."""
    return [line.split() for line in result.output.splitlines()]


def test_instances_are_listed_with_how_they_do(control: ScriptedControl, meshctl: Meshctl) -> None:
    silent = events.ConsumerInstance(name="instances/billing.two", sidecar="s2", topic_pattern="o.*", paused=True)
    control.answers["ListInstances"] = instances_pb.ListInstancesResponse(instances=[ONE, silent], statuses=[READING])
    listed = meshctl("instances", "list", "--sidecar", "s1", "--group", "billing")
    assert lines(listed)[1:] == [
        ["billing.one", "s1", "orders", "reading", "42", "-"],
        ["billing.two", "s2", "topics", "that", "match", "o.*", "paused", "-", "-"],
    ]
    request = asked(control, "ListInstances")
    assert (request.sidecar, request.group) == ("s1", "billing")
    assert meshctl("instances").output == meshctl("instances", "list").output
    said = json.loads(meshctl("instances", "list", "-o", "json").output)
    assert [each["name"] for each in said["instances"]] == [ONE.name, silent.name]
    assert [each["state"] for each in said["statuses"]] == ["INSTANCE_STATE_READING"]


def test_instances_are_watched_look_by_look(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["ListInstances"] = instances_pb.ListInstancesResponse(instances=[ONE], statuses=[READING])
    watched = meshctl("instances", "list", "-w", "--interval", "0.1", "-n", "2", "-o", "json")
    assert [json.loads(line)["instances"][0]["name"] for line in watched.output.splitlines()] == [ONE.name] * 2


def test_an_instance_is_described(control: ScriptedControl, meshctl: Meshctl) -> None:
    done = order(description="at offset 5")(instances_pb.PlaceOrderRequest())
    done.command.seek.first = True
    described = instances_pb.DescribedInstance(instance=ONE, status=READING, sidecar_alive=True, orders=[done])
    control.answers["DescribeInstance"] = described
    shown = meshctl("instances", "describe", "billing.one")
    assert asked(control, "DescribeInstance").name == ONE.name
    assert shown.output.startswith("billing.one: reading\n  kind:     active\n  sidecar:  s1\n  reads:    orders\n")
    for line in (["orders", "0", "5", "-", "2"], ["orders", "1", "7", "7", "40"]):
        assert line in lines(shown)
    for words in ("begins at earliest without a commit, commits by itself", "static member till-1", "at offset 5"):
        assert words in shown.output
    assert json.loads(meshctl("instances", "describe", "billing.one", "-o", "json").output)["sidecar_alive"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("pause", "billing.one"), {"pause": {}}),
        (("resume", "instances/billing.one"), {"resume": {}}),
        (("remove", "billing.one"), {"remove": {}}),
        (("drain", "billing.one"), {"drain": {"timeout": "30s"}}),
        (("drain", "billing.one", "--within", "2.5"), {"drain": {"timeout": "2.500s"}}),
        (("seek", "billing.one", "--first"), {"seek": {"first": True}}),
        (("seek", "billing.one", "--last", "--topic", "t"), {"seek": {"topic": "t", "last": True}}),
        (
            ("seek", "billing.one", "--offset", "0", "--topic", "t", "--partition", "0"),
            {"seek": {"topic": "t", "partition": 0, "offset": "0"}},
        ),
        (
            ("seek", "billing.one", "--time", "2026-11-21T21:00:00+01:00"),
            {"seek": {"time": "2026-11-21T20:00:00Z"}},
        ),
        (("configure", "billing.one", "--topic", "a", "--topic", "b"), {"configure": {"topics": ["a", "b"]}}),
        (
            ("configure", "billing.one", "--max-concurrency", "16", "--order-by-partition", "--filter", ""),
            {"configure": {"delivery": {"max_concurrency": 16}, "delivery_mask": "maxConcurrency,orderByKey,filter"}},
        ),
        (
            ("configure", "billing.one", "--route", "value.a->1 > 2 -> /large"),
            {
                "configure": {
                    "delivery": {"routes": [{"when": "value.a->1 > 2", "path": "/large"}]},
                    "delivery_mask": "routes",
                }
            },
        ),
        (("configure", "billing.one", "--no-routes"), {"configure": {"delivery": {}, "delivery_mask": "routes"}}),
    ],
)
def test_an_order_says_what_was_typed(
    control: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...], command: dict[str, Any]
) -> None:
    control.answers["PlaceOrder"] = order(description="as told")
    result = meshctl("instances", *arguments, "--reason", "because", "--wait", "3", "--expire", "60")
    assert result.exit_code == 0, result.output
    request = asked(control, "PlaceOrder")
    assert MessageToDict(request.command, preserving_proto_field_name=True) == command
    assert (request.target, request.wait.seconds, request.expire_after.seconds, request.reason) == (
        ONE.name,
        3,
        60,
        "because",
    )
    assert len(request.request_id) == 36
    assert result.output.endswith(": done, as told\n")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--first", "--last"),
        ("--offset", "5"),
        ("--offset", "5", "--topic", "t"),
        ("--offset", "-1", "--topic", "t", "--partition", "0"),
        ("--first", "--partition", "0"),
        ("--time", "yesterday"),
        ("--time", "2026-11-21T20:00:00"),
    ],
)
def test_a_place_to_go_on_is_one_place(meshctl: Meshctl, control: ScriptedControl, arguments: tuple[str, ...]) -> None:
    assert meshctl("instances", "seek", "billing.one", *arguments).exit_code == 2
    assert control.calls == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--topic", "a", "--topic-pattern", "b"),
        ("--route", "value.a > 1 /large"),
        ("--route", "-> /large"),
        ("--no-routes", "--route", "true -> /all"),
        ("--max-concurrency", "0"),
    ],
)
def test_a_change_of_a_delivery_says_one_thing(
    meshctl: Meshctl, control: ScriptedControl, arguments: tuple[str, ...]
) -> None:
    assert meshctl("instances", "configure", "billing.one", *arguments).exit_code == 2
    assert control.calls == []


def test_a_reactive_consumer_is_described_with_its_delivery(control: ScriptedControl, meshctl: Meshctl) -> None:
    reactive = events.ConsumerInstance(
        name=ONE.name, kind=events.INSTANCE_KIND_REACTIVE, topics=["orders"],
        delivery=events.DeliverySettings(
            backend_url="http://127.0.0.1:8081", backend_path="/kafka/records", max_concurrency=8, order_by_key=True,
            max_batch_records=100, max_batch_bytes=1000, linger_ms=5, filter="key != 'x'",
            routes=[events.DeliveryRoute(when="headers.kind == 'order'", path="/orders")],
        ),
    )  # fmt: skip
    control.answers["DescribeInstance"] = instances_pb.DescribedInstance(instance=reactive)
    shown = [" ".join(line.split()) for line in meshctl("instances", "describe", "billing.one").output.splitlines()]
    for line in (
        "kind: reactive",
        "backend: http://127.0.0.1:8081/kafka/records",
        "parallel: 8 batches, in order for each key",
        "batches: at most 100 records, 1000 bytes, 5 ms",
        "filter: key != 'x'",
        "route: headers.kind == 'order' -> /orders",
    ):
        assert line in shown


@pytest.mark.parametrize(
    ("result", "code", "says"),
    [
        (events.ORDER_RESULT_FAILED, 1, "billing.one: pause: it has no consumer"),
        (events.ORDER_RESULT_EXPIRED, 3, "billing.one: pause: it has no consumer"),
        (events.ORDER_RESULT_UNSPECIFIED, 3, "billing.one: pause: not done within 10 s by sidecar s1"),
    ],
)
def test_what_comes_to_no_good_end_is_an_error(
    control: ScriptedControl, meshctl: Meshctl, result: events.OrderResult.ValueType, code: int, says: str
) -> None:
    control.answers["PlaceOrder"] = order(result, description="it has no consumer")
    told = meshctl("instances", "pause", "billing.one")
    assert (told.exit_code, says in told.output) == (code, True), told.output
    as_json = meshctl("instances", "pause", "billing.one", "-o", "json")
    assert as_json.exit_code == code
    assert json.loads(as_json.stdout)["name"] == "orders/3f9a"
    assert says in json.loads(as_json.stderr)["error"]["message"]


def test_who_does_not_wait_is_told_that_the_order_is_given(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["PlaceOrder"] = order(events.ORDER_RESULT_UNSPECIFIED)
    told = meshctl("instances", "drain", "billing.one", "--wait", "0")
    assert (told.exit_code, told.output) == (
        0, "billing.one: drain within 30 s: order 3f9a is given to sidecar s1\n",
    )  # fmt: skip


def test_a_call_is_not_cut_short_while_it_waits(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["PlaceOrder"] = order()
    meshctl("instances", "pause", "billing.one", "--wait", "50", "--timeout", "1")
    [call] = control.calls
    assert call.time_left is not None
    assert call.time_left > 50


def test_orders_are_listed_newest_first_as_control_has_them(control: ScriptedControl, meshctl: Meshctl) -> None:
    placed = [order()(instances_pb.PlaceOrderRequest()) for _ in range(2)]
    placed[0].command.pause.SetInParent()
    placed[1].command.drain.timeout.FromSeconds(1)
    control.answers["ListOrders"] = instances_pb.ListOrdersResponse(orders=placed)
    shown = meshctl("instances", "orders", "billing.one", "--open", "-n", "5")
    assert [line[:5] for line in lines(shown)[1:]] == [
        ["3f9a", "billing.one", "pause", "s1", "done"],
        ["3f9a", "billing.one", "drain", "within", "1"],
    ]
    request = asked(control, "ListOrders")
    assert (request.target, request.open_only, request.page_size) == (ONE.name, True, 5)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("health", "s1"), {"check_health": {}}),
        (("info", "members/s1"), {"get_info": {}}),
        (("log-levels", "s1"), {"get_log_levels": {}}),
        (
            ("log-levels", "s1", "mesh=debug", "ROOT=INFO"),
            {"set_log_levels": {"levels": {"mesh": "DEBUG", "ROOT": "INFO"}}},
        ),
    ],
)
def test_a_sidecar_is_asked_and_its_answer_is_shown(
    control: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...], command: dict[str, Any]
) -> None:
    details = json.dumps({"ready": True, "kafka": {"brokers": ["a:1", "b:2"]}, "checks": [{"name": "disk"}]})
    control.answers["PlaceOrder"] = order(target="members/s1", details_json=details)
    shown = meshctl("sidecars", *arguments)
    assert shown.exit_code == 0, shown.output
    request = asked(control, "PlaceOrder")
    assert MessageToDict(request.command, preserving_proto_field_name=True) == command
    assert (request.target, request.expire_after.seconds) == ("members/s1", 10)
    assert lines(shown)[2:] == [["ready", "true"], ["kafka.brokers", "a:1,", "b:2"], ["checks[0].name", "disk"]]


def test_a_level_is_one_of_a_logger(meshctl: Meshctl) -> None:
    wrong = meshctl("sidecars", "log-levels", "s1", "DEBUG")
    assert (wrong.exit_code, "'DEBUG' is no LOGGER=LEVEL" in wrong.output) == (2, True)


def test_sidecars_are_listed_also_those_that_are_silent(control: ScriptedControl, meshctl: Meshctl) -> None:
    s1 = admin.Member(name="members/s1", kind=admin.MEMBER_KIND_SIDECAR, version="1.2", address="127.0.0.1:8084")
    s1.last_seen_time.GetCurrentTime()
    gone = events.ConsumerInstance(name="instances/g.i", sidecar="s2")
    router = admin.Member(name="members/r1", kind=admin.MEMBER_KIND_ROUTER)
    control.answers["GetStatus"] = admin.MeshStatus(members=[router, s1], instances=[ONE, gone])
    shown = meshctl("sidecars", "list")
    assert [line[:4] for line in lines(shown)[1:]] == [
        ["s1", "1.2", "127.0.0.1:8084", "1"],
        ["s2", "-", "-", "1"],
    ]
    assert "not heard of" in shown.output
    named = json.loads(meshctl("sidecars", "list", "-o", "json").output)["sidecars"]
    assert [each["name"] for each in named] == ["members/s1", "members/s2"]


@pytest.mark.parametrize(
    ("option", "name"), [(("--instance", "billing.one"), ONE.name), (("--sidecar", "s1"), "members/s1")]
)
def test_the_history_of_an_instance_and_of_a_sidecar_is_asked_for_by_name(
    control: ScriptedControl, meshctl: Meshctl, option: tuple[str, str], name: str
) -> None:
    assert meshctl("history", *option).exit_code == 0
    assert asked(control, "ListHistory").name == name


def test_the_shell_is_offered_instances_and_sidecars(control: ScriptedControl, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    from meshctl.cli import cli

    monkeypatch.setenv("MESHCTL_ADDRESS", control.address)
    control.answers["ListInstances"] = instances_pb.ListInstancesResponse(instances=[ONE])
    s1 = admin.Member(name="members/s1", kind=admin.MEMBER_KIND_SIDECAR)
    control.answers["GetStatus"] = admin.MeshStatus(members=[s1, admin.Member(name="members/sandbox")])
    complete = ShellComplete(cli, {}, "meshctl", "_MESHCTL_COMPLETE")
    assert [each.value for each in complete.get_completions(["instances", "pause"], "bil")] == ["billing.one"]
    assert [each.value for each in complete.get_completions(["sidecars", "health"], "s")] == ["s1"]


def test_events_about_instances_and_orders_are_told_in_words() -> None:
    placed = order()(instances_pb.PlaceOrderRequest())
    placed.command.pause.SetInParent()
    ended = events.SidecarOrderEnded(name=placed.name, outcome=events.OrderOutcome(result=events.ORDER_RESULT_DONE))
    said = [
        wording.event(events.Event(consumer_instance_registered=events.ConsumerInstanceRegistered(instance=ONE))),
        wording.event(events.Event(sidecar_ordered=events.SidecarOrdered(order=placed))),
        wording.event(events.Event(stream="members/s1", sidecar_order_ended=ended)),
    ]
    assert said == [
        "consumer billing.one on s1 reads orders",
        "billing.one is ordered: pause (3f9a)",
        "sidecar s1: order 3f9a done",
    ]


def test_the_lag_of_an_instance_is_known_when_that_of_each_partition_is() -> None:
    assert instances.lag(READING) == 42
    assert instances.lag(None) is None
    unknown = instances_pb.InstanceStatus(partitions=[*READING.partitions, instances_pb.InstancePartition(lag=-1)])
    assert instances.lag(unknown) is None
