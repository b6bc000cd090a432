"""Jobs of pipelines as control knows them, and the orders that pipelines get."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mesh.rpc import events, instances, pipelines
from services.control.decisions.members.members import EXPIRY
from services.control.decisions.members.pipelines import MAX_APART, Pipelines
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.sidecars.orders import TIME_OF_A_LOOK, Orders, given_up, overdue, place
from services.control.presentation.sidecars import order_ended, ordered

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TARGET = "pipelines/p1"
ACCEPT = events.SidecarCommand(accept_loss=events.AcceptLoss(job="archive", topic="apples"))


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def placed(target: str = TARGET, command: events.SidecarCommand = ACCEPT) -> events.SidecarOrder:
    request = instances.PlaceOrderRequest(target=target, command=command)
    return place(Orders(), {}, {"s1", TARGET}, "7", request, NOON).order


def test_the_last_word_of_a_pipeline_that_is_there_is_shown() -> None:
    clock, alive = Clock(), {TARGET, "pipelines/p0"}
    known = Pipelines(alive.__contains__, clock)
    apart = [pipelines.TopicApart(topic=f"topic-{number}", problem="x" * 5_000) for number in range(MAX_APART + 5)]
    known.report(TARGET, [pipelines.JobStatus(job="audit"), pipelines.JobStatus(job="archive", apart=apart)])
    known.report("pipelines/p0", [pipelines.JobStatus(job="traffic")])
    assert [(each.pipeline, each.status.job) for each in known.jobs()] == [
        ("pipelines/p0", "traffic"),
        (TARGET, "archive"),
        (TARGET, "audit"),
    ]
    archive = known.jobs()[1].status
    assert (len(archive.apart), len(archive.apart[0].problem)) == (MAX_APART, 1_000)
    alive.discard("pipelines/p0")
    assert {each.pipeline for each in known.jobs()} == {TARGET}
    clock.now += EXPIRY + timedelta(seconds=1)
    assert known.jobs() == []


def test_a_pipeline_is_ordered_to_accept_a_loss() -> None:
    order = placed()
    assert (order.target, order.sidecar, order.command) == (TARGET, TARGET, ACCEPT)
    event = events.Event(stream=TARGET, sidecar_ordered=events.SidecarOrdered(order=order))
    assert list(ordered(event)) == [
        "pipeline p1 is to go on in apples without what job archive has lost of it (order 7)"
    ]


@pytest.mark.parametrize(
    ("target", "command", "text"),
    [
        (TARGET, events.SidecarCommand(get_info=events.GetInfo()), "get_info is nothing that a pipeline can be told"),
        ("members/s1", ACCEPT, "accept_loss is nothing that a sidecar can be told"),
        (
            TARGET,
            events.SidecarCommand(accept_loss=events.AcceptLoss(job="replay", topic="a")),
            "'replay' is not one of",
        ),
        (TARGET, events.SidecarCommand(accept_loss=events.AcceptLoss(job="audit")), "accept_loss.topic: is required"),
        ("pipelines/", ACCEPT, "is none of instances/GROUP.INSTANCE, members/SIDECAR and pipelines/PIPELINE"),
    ],
)
def test_other_orders_are_refused(target: str, command: events.SidecarCommand, text: str) -> None:
    with pytest.raises(InvalidField, match=text):
        placed(target, command)


def test_a_pipeline_that_nobody_has_heard_of_is_unknown() -> None:
    with pytest.raises(Unknown, match=r"no pipeline 'p2' has been heard of \(known: p1\)"):
        placed("pipelines/p2")
    with pytest.raises(Unknown, match=r"no sidecar 'p1' has been heard of \(known: s1\)"):
        placed("members/p1", events.SidecarCommand(get_info=events.GetInfo()))


def test_the_batches_that_a_job_is_at_may_end_before_an_order_is_given_up() -> None:
    order = placed()
    orders, expires = Orders(open={order.name: order}), order.expire_time.ToDatetime(UTC)
    assert overdue(orders, expires + TIME_OF_A_LOOK, NOON, lambda _: True) == []
    late = expires + TIME_OF_A_LOOK + timedelta(minutes=1)
    assert overdue(orders, late, NOON, lambda _: True) == [order]
    event = events.Event(stream=TARGET, sidecar_order_ended=given_up(order, late, heard=False))
    [sentence] = order_ended(event)
    assert sentence.startswith("pipeline p1: order 7 expired: nobody carried it out: pipeline 'p1' was not there by ")
