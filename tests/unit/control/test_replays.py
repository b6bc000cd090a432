"""The life of a replay: asked for, carried out by whoever can, told of, ended once; and what it stops goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import events, replays
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.replays.assignment import MAX_RUNNING, Candidate, choose, readers_of, why_waiting
from services.control.domain.replays.checks import checked
from services.control.domain.replays.replays import (
    KEPT,
    MAX_OPEN,
    MAX_OPEN_FOR_MEMBER,
    MAX_PARTITIONS,
    cancelled,
    check_report,
    ended,
    gone_on_from,
    progress_interval,
    started,
)
from services.control.domain.view import MeshView, apply
from services.control.presentation.sentences import Known, sentences
from services.control.store.drafts import PAYLOADS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING, DONE, FAILED, CANCELLED = (
    replays.REPLAY_STATE_RUNNING,
    replays.REPLAY_STATE_DONE,
    replays.REPLAY_STATE_FAILED,
    replays.REPLAY_STATE_CANCELLED,
)
Range = replays.ReplayRange
ONE = "instances/billing.one"


def to_backend(*topics: str, sidecar: str = "", **fields: Any) -> replays.ReplaySpec:
    ranges = [Range(topic=topic) for topic in topics or ("orders",)]
    return replays.ReplaySpec(ranges=ranges, backend=replays.ReplayToBackend(sidecar=sidecar), **fields)


def to_topic(*, dry_run: bool = False, **fields: Any) -> replays.ReplaySpec:
    """Orders, to orders-again."""
    copy = replays.ReplayToTopic(**{"topic": "orders-again", **fields})
    return replays.ReplaySpec(ranges=[Range(topic="orders")], topic=copy, dry_run=dry_run)


def part(position: int, partition: int = 0, **fields: Any) -> replays.ReplayPartition:
    known = {"topic": "orders", "end_offset": 100, **fields}
    return replays.ReplayPartition(partition=partition, position=position, **known)


class Mesh:
    """A mesh whose replays are 1, 2, 3, ...; s1 reads orders, s2 orders and returns, s3 what begins with o."""

    def __init__(self) -> None:
        self.view = MeshView()
        self.held: dict[str, events.ConsumerInstance] = {}
        self.given = 0
        for sidecar, reads in {"s1": {"topics": ["orders"]}, "s2": {"topics": ["orders", "returns"]}}.items():
            self.holds(sidecar, **reads)
        self.holds("s3", topic_pattern="o.*")

    def holds(self, sidecar: str, **reads: Any) -> None:
        name = f"instances/g.{sidecar}"
        self.held[name] = events.ConsumerInstance(
            name=name, sidecar=sidecar, kind=events.INSTANCE_KIND_REACTIVE, **reads
        )

    def says(self, payload: Message) -> None:
        event = events.Event(position=self.view.position + 1)
        event.time.FromDatetime(NOON)
        getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
        self.view = apply(self.view, event)

    def starts(self, spec: replays.ReplaySpec | None = None, stopped: tuple[str, ...] = ()) -> str:
        self.given += 1
        name, at = f"replays/{self.given}", NOON + timedelta(seconds=self.given)
        self.says(started(self.view.replays, name, spec or to_backend(), "ada", "why", at, stopped=stopped))
        return name

    def gives(self, name: str, member: str = "s1") -> None:
        self.says(events.ReplayAssigned(name=name, member=f"members/{member}"))

    def ends(self, name: str, state: replays.ReplayState.ValueType = DONE, text: str = "") -> None:
        self.says(ended(name, state, text))

    def now(self, name: str) -> replays.Replay:
        return self.view.replays.get(name)

    def member_for(self, spec: replays.ReplaySpec, *there: str, **load: int) -> str | None:
        return choose(replays.Replay(spec=spec), map(Candidate, there), readers_of(self.held), load)

    def waits(self, spec: replays.ReplaySpec, *there: str, **load: int) -> str:
        return why_waiting(replays.Replay(spec=spec), map(Candidate, there), readers_of(self.held), load)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


def test_it_is_pending_until_a_member_has_it_and_is_as_far_as_that_says(mesh: Mesh) -> None:
    name = mesh.starts()
    assert mesh.now(name).state == replays.REPLAY_STATE_PENDING
    mesh.gives(name)
    assert mesh.now(name).state == RUNNING
    mesh.says(events.ReplayProgressed(name=name, partitions=[part(10, 1), part(5)]))
    mesh.says(events.ReplayProgressed(name=name, partitions=[part(20, 1)]))
    assert [(each.partition, each.position) for each in mesh.now(name).partitions] == [(0, 5), (1, 20)]
    mesh.gives(name, "s2")
    assert [(each.partition, each.position) for each in mesh.now(name).partitions] == [(0, 5), (1, 20)]


def test_it_ends_once(mesh: Mesh) -> None:
    name = mesh.starts()
    mesh.gives(name)
    mesh.ends(name, FAILED, "no backend")
    mesh.ends(name, DONE)
    replay = mesh.now(name)
    assert (replay.state, replay.description) == (FAILED, "no backend")
    assert mesh.view.replays.open == {}


def test_its_member_alone_tells_of_it(mesh: Mesh) -> None:
    name = mesh.starts()
    report = replays.ReportReplayRequest(name=name, state=RUNNING)
    with pytest.raises(NotAllowed, match="nobody carries it out; 's1' has to drop it"):
        check_report(mesh.view.replays, report, "s1")
    mesh.gives(name)
    assert check_report(mesh.view.replays, report, "s1") == mesh.now(name)
    with pytest.raises(NotAllowed, match="'members/s1' carries it out; 's2' has to drop it"):
        check_report(mesh.view.replays, report, "s2")
    mesh.ends(name)
    with pytest.raises(NotAllowed, match="is done; 's1' has to drop it"):
        check_report(mesh.view.replays, report, "s1")
    assert check_report(mesh.view.replays, replays.ReportReplayRequest(name=name, state=DONE), "s1") is None
    with pytest.raises(Unknown, match="never begun, or so old that only the log tells of it"):
        check_report(mesh.view.replays, replays.ReportReplayRequest(name="replays/none"), "s1")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "state: is how it does"),
        ({"state": RUNNING, "partitions": [part(-1)]}, r"partitions\[0\].position: -1 is negative"),
        ({"state": RUNNING, "partitions": [part(0, topic="a b")]}, "is no topic of the mesh's clients"),
        ({"state": RUNNING, "partitions": [part(0, n) for n in range(MAX_PARTITIONS + 1)]}, "1001 are more than 1000"),
    ],
)
def test_what_a_member_says_can_be_refused(mesh: Mesh, said: dict[str, Any], why: str) -> None:
    name = mesh.starts()
    mesh.gives(name)
    with pytest.raises(InvalidField, match=why):
        check_report(mesh.view.replays, replays.ReportReplayRequest(name=name, **said), "s1")


def test_it_is_cancelled_at_once_where_nobody_has_it(mesh: Mesh) -> None:
    name = mesh.starts()
    event = cancelled(mesh.view.replays, name, "before anybody carried it out")
    assert isinstance(event, events.ReplayEnded)
    mesh.says(event)
    with pytest.raises(NotAllowed, match="is cancelled already: before anybody carried it out"):
        cancelled(mesh.view.replays, name, "")
    given = mesh.starts()
    mesh.gives(given)
    assert cancelled(mesh.view.replays, given, "") == events.ReplayCancelOrdered(name=given)
    mesh.says(events.ReplayCancelOrdered(name=given))
    assert cancelled(mesh.view.replays, given, "") is None


def test_so_many_are_open_and_remembered(mesh: Mesh) -> None:
    for _ in range(MAX_OPEN_FOR_MEMBER):
        mesh.starts(to_backend(sidecar="s1"))
    with pytest.raises(NotAllowed, match="20 replays are open for 's1'"):
        mesh.starts(to_backend(sidecar="s1"))
    for _ in range(MAX_OPEN - MAX_OPEN_FOR_MEMBER):
        mesh.starts()
    with pytest.raises(NotAllowed, match="100 replays are open"):
        mesh.starts()
    while mesh.given < KEPT + 10:
        mesh.ends(next(iter(mesh.view.replays.open)))
        mesh.starts()
    for name in list(mesh.view.replays.open):
        mesh.ends(name)
    assert len(mesh.view.replays.ended) == KEPT
    assert [each.name for each in mesh.view.replays.newest()][:2] == [f"replays/{mesh.given - n}" for n in (0, 1)]


def test_less_of_its_progress_is_stored_the_longer_and_wider_it_is() -> None:
    replay = replays.Replay()
    replay.create_time.FromDatetime(NOON)
    assert progress_interval(replay, 1, NOON) == timedelta(seconds=5)
    assert progress_interval(replay, 1, NOON + timedelta(hours=1)) == timedelta(seconds=36)
    assert progress_interval(replay, 400, NOON) == timedelta(seconds=20)


def test_it_goes_to_whoever_reads_all_of_its_topics_and_has_the_fewest(mesh: Mesh) -> None:
    assert mesh.member_for(to_backend("orders"), "s1", "s2") == "s1"
    assert mesh.member_for(to_backend("orders"), "s1", "s2", s1=1) == "s2"
    assert mesh.member_for(to_backend("orders", "returns"), "s1", "s2", "s3") == "s2"
    assert mesh.member_for(to_backend("others"), "s1", "s3") == "s3"
    assert mesh.member_for(to_backend("returns"), "s1", "s3") is None
    assert mesh.member_for(to_backend("orders.dlq", dead_letters=True), "s1") == "s1"
    assert mesh.member_for(to_backend("orders.dlq"), "s1") is None


def test_one_for_a_named_sidecar_is_for_that_one(mesh: Mesh) -> None:
    assert mesh.member_for(to_backend("anything", sidecar="s1"), "s1", "s2") == "s1"
    assert mesh.member_for(to_backend(sidecar="s9"), "s1", "s2") is None


def test_dead_letters_go_back_by_any_member_that_writes(mesh: Mesh) -> None:
    spec = replays.ReplaySpec(ranges=[Range(topic="t")], source=replays.ReplayToSource(), dead_letters=True)
    assert mesh.member_for(spec, "s9") == "s9"
    spark = [Candidate("spark-1", frozenset({"copy"}))]
    assert choose(replays.Replay(spec=spec), spark, {}, {}) is None


def test_one_that_waits_says_for_what(mesh: Mesh) -> None:
    assert mesh.waits(to_backend()).startswith("waits for a member: none follows its replays")
    assert mesh.waits(to_backend(sidecar="s9"), "s1").startswith("waits for sidecar 's9', which does not follow")
    assert mesh.waits(to_backend("returns"), "s1", "s9") == (
        "waits for a member that can do it: s1 has no reactive consumer of returns, s9 has no reactive consumer"
    )
    assert mesh.waits(to_backend(), "s1", s1=MAX_RUNNING - 1) == ""
    busy = mesh.waits(to_backend(), "s1", s1=MAX_RUNNING)
    assert busy == "waits for its turn: s1 carries out 5, and no more at a time"


def test_a_copy_and_a_profile_go_to_a_pipeline(mesh: Mesh) -> None:
    pipelines = [Candidate(name, frozenset({"topic", "profile"}), max_running=2) for name in ("p1", "p2")]
    sidecar = Candidate("s1")
    for spec in (to_topic(), replays.ReplaySpec(ranges=[Range(topic="t")], profile=replays.ReplayToProfile())):
        replay = replays.Replay(spec=spec)
        assert choose(replay, [sidecar, *pipelines], {}, {"p1": 1}) == "p2"
        assert choose(replay, [sidecar, *pipelines], {}, {"p1": 1, "p2": 2}) == "p1"
        assert choose(replay, [sidecar], {}, {}) is None
        assert why_waiting(replay, [sidecar], {}, {}) == (
            "waits for a pipeline: none follows its replays; start `kafka-mesh pipeline serve`"
        )
        assert why_waiting(replay, [sidecar, *pipelines], {}, {"p1": 2, "p2": 2}) == (
            "waits for its turn: p1 carries out 2, p2 carries out 2, and no more at a time"
        )


def test_a_copy_may_be_for_one_pipeline_alone(mesh: Mesh) -> None:
    p1 = Candidate("p1", frozenset({"topic"}))
    replay = replays.Replay(spec=to_topic(pipeline="p2"))
    assert choose(replay, [p1], {}, {}) is None
    assert why_waiting(replay, [p1], {}, {}) == (
        "waits for pipeline 'p2', which does not follow its replays; start `kafka-mesh pipeline serve` there, or "
        "cancel the replay"
    )
    assert choose(replay, [p1, Candidate("p2", frozenset({"topic"}))], {}, {}) == "p2"
    for _ in range(MAX_OPEN_FOR_MEMBER):
        mesh.starts(to_topic(pipeline="p2"))
    with pytest.raises(NotAllowed, match="20 replays are open for 'p2'"):
        mesh.starts(to_topic(pipeline="p2"))


def test_of_two_copies_with_one_group_one_is_open_at_a_time(mesh: Mesh) -> None:
    name = mesh.starts(to_topic(group="g"))
    with pytest.raises(NotAllowed, match=f"{name} keeps in group 'g' how far it is"):
        mesh.starts(to_topic(group="g"))
    mesh.ends(name, CANCELLED)
    mesh.starts(to_topic(group="g"))


def test_what_it_stops_is_known_until_a_sidecar_lets_it_go_on(mesh: Mesh) -> None:
    name = mesh.starts(stopped=(ONE,))
    mesh.ends(name)
    assert mesh.view.replays.stopped == {ONE: name}

    def order(replay: str, number: int, result: events.OrderResult.ValueType, **command: Any) -> None:
        said = events.SidecarOrder(
            name=f"orders/{number}", target=ONE, sidecar="s1", command=events.SidecarCommand(**command), replay=replay
        )
        mesh.says(events.SidecarOrdered(order=said))
        mesh.says(events.SidecarOrderEnded(name=said.name, outcome=events.OrderOutcome(result=result)))

    order(name, 1, events.ORDER_RESULT_DONE, drain={})
    order("", 2, events.ORDER_RESULT_DONE, resume={})  # an operator's own says nothing of it
    order(name, 3, events.ORDER_RESULT_EXPIRED, resume={})
    assert mesh.view.replays.stopped == {ONE: name}
    order(name, 4, events.ORDER_RESULT_DONE, resume={})
    assert mesh.view.replays.stopped == {}
    again = mesh.starts(stopped=(ONE,))
    assert mesh.view.replays.stopped == {ONE: again}
    mesh.says(events.ConsumerInstanceRemoved(name=ONE))
    assert mesh.view.replays.stopped == {}


def test_what_is_left_unsaid_is_in_the_log() -> None:
    assert checked(to_backend(), "3f9a").backend.group == "replay-3f9a"
    own = replays.ReplaySpec(ranges=[Range(topic="t")], backend=replays.ReplayToBackend(group="g"))
    assert checked(own, "3f9a").backend.group == "g"


def backend(*ranges: Range, **fields: Any) -> replays.ReplaySpec:
    return replays.ReplaySpec(ranges=ranges, backend=replays.ReplayToBackend(), **fields)


def group(*ranges: Range, **fields: Any) -> replays.ReplaySpec:
    return replays.ReplaySpec(ranges=ranges, group=replays.ReplayByGroup(group="g"), **fields)


def seek(instance: str, *ranges: Range) -> replays.ReplaySpec:
    return replays.ReplaySpec(ranges=ranges, seek=replays.ReplayBySeek(instance=instance))


def at(second: int) -> Timestamp:
    return Timestamp(seconds=second)


T = Range(topic="t")
LETTERS = {"dead_letters": True}


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        (replays.ReplaySpec(ranges=[T]), "spec.destination", "one of backend, seek, group, source, topic, profile"),
        (backend(), "spec.ranges", "needs 1 to 1000 ranges, got 0"),
        (backend(Range()), "spec.ranges[0].topic", "records of which topic"),
        (backend(Range(topic="a b")), "spec.ranges[0].topic", "is no topic of the mesh's clients"),
        (backend(Range(topic="mesh.events")), "spec.ranges[0].topic", "is no topic of the mesh's clients"),
        (backend(Range(topic="t", partition=-1)), "spec.ranges[0].partition", "-1 is negative"),
        (backend(Range(topic="t", start_offset=5)), "spec.ranges[0].partition", "offset 5 of which partition?"),
        (backend(Range(topic="t", partition=0, start_offset=-5)), "spec.ranges[0].start_offset", "-5 is negative"),
        (
            backend(Range(topic="t", partition=0, start_offset=5, end_offset=5)),
            "spec.ranges[0].end_offset",
            "5 is not behind start_offset 5",
        ),
        (backend(Range(topic="t", partition=0, end_offset=0)), "spec.ranges[0].end_offset", "0 leaves nothing"),
        (
            backend(Range(topic="t", start_time=at(9), end_time=at(9))),
            "spec.ranges[0].end_time",
            "not later than start_time",
        ),
        (backend(Range(topic="t", start_time=at(-1))), "spec.ranges[0].start_time", "no time between"),
        (backend(Range(topic="t", start_at_end=True)), "spec.ranges[0].start_at_end", "nothing lies behind the end"),
        (backend(T, Range(topic="t", partition=1)), "spec.ranges[1]", "topic 't' partition 1 stands in a range before"),
        (backend(Range(topic="t", partition=1), T), "spec.ranges[1]", "topic 't' stands in a range before"),
        (backend(T, rate=-1), "spec.rate", "-1 is not from 0"),
        (backend(T, rate=float("nan")), "spec.rate", "nan is not from 0"),
        (
            replays.ReplaySpec(ranges=[T], backend=replays.ReplayToBackend(path="orders")),
            "spec.backend.path",
            "is no path: it begins with /",
        ),
        (
            replays.ReplaySpec(ranges=[T], source=replays.ReplayToSource()),
            "spec.dead_letters",
            "only they know where they came from",
        ),
        (backend(T, filter={"keys": ["k"]}), "spec.filter", "is about dead letters"),
        (backend(T, filter={"reasons": ["x"]}, **LETTERS), "spec.filter.reasons", "'x' is not one of backend"),
        (backend(T, filter={"offsets": [1]}, **LETTERS), "spec.filter.offsets", "are those of one partition"),
        (group(Range(topic="t", end_time=at(9))), "spec.ranges[0].end_time", "is nothing that a group has"),
        (group(T, rate=5), "spec.rate", "is nothing that a group has"),
        (replays.ReplaySpec(ranges=[T], group=replays.ReplayByGroup()), "spec.group.group", "which group?"),
        (seek("one", T), "spec.seek.instance", "GROUP.INSTANCE"),
        (seek(ONE, *[T] * 21), "spec.ranges", "needs 1 to 20 ranges, got 21"),
    ],
)
def test_what_can_not_be_is_refused_by_its_field(spec: replays.ReplaySpec, field: str, why: str) -> None:
    with pytest.raises(InvalidField) as refused:
        checked(spec, "1")
    assert refused.value.field == field
    assert why in refused.value.description


def test_a_topic_may_be_written_to_another_one() -> None:
    spec = replays.ReplaySpec(ranges=[T], source=replays.ReplayToSource(topic="t-again"))
    spec.filter.SetInParent()
    assert not checked(spec, "1").HasField("filter")
    replay = replays.Replay(name="replays/3f", spec=spec)
    event = events.Event(replay_started=events.ReplayStarted(replay=replay))
    assert sentences(event, Known()) == ["replay 3f: t from the first record to topic t-again"]


def test_replays_are_told_in_sentences() -> None:
    ranges = [
        Range(topic="orders", partition=0, start_offset=10, end_offset=25),
        Range(topic="returns", start_time=at(1_800_000_000)),
    ]
    spec = replays.ReplaySpec(ranges=ranges, source=replays.ReplayToSource(), dead_letters=True, rate=5, dry_run=True)
    cases = {
        "replay 3f: dead letters of orders/0 from 10 to 25, returns from 2027-01-15 08:00:00 UTC back to where they "
        "came from at 5 records a second (only counted)": events.ReplayStarted(
            replay=replays.Replay(name="replays/3f", spec=spec)
        ),
        "replay 3f: group g goes on at t at the end": events.ReplayStarted(
            replay=replays.Replay(name="replays/3f", spec=group(Range(topic="t", start_at_end=True)))
        ),
        "replay 3f is carried out by s1": events.ReplayAssigned(name="replays/3f", member="members/s1"),
        "replay 3f: 7 records done, 2 failed": events.ReplayProgressed(
            name="replays/3f", partitions=[part(9, records=7, failed=2)]
        ),
        "replay 3f is to end where it is": events.ReplayCancelOrdered(name="replays/3f"),
        "replay 3f cancelled: enough": ended("replays/3f", CANCELLED, "enough"),
        "replay 3f failed: its member does not say why": ended("replays/3f", FAILED, ""),
    }
    for sentence, payload in cases.items():
        event = events.Event()
        getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
        assert sentences(event, Known()) == [sentence]


def test_a_copy_that_goes_on_with_an_ended_one_knows_how_far_that_was(mesh: Mesh) -> None:
    """Its group in Kafka may be forgotten by then, and it would begin anew."""
    spec = to_topic(group="mesh-replay-1")
    first = mesh.starts(spec)
    mesh.gives(first, "p1")
    mesh.says(events.ReplayProgressed(name=first, partitions=[part(40)]))
    assert gone_on_from(mesh.view.replays, spec) == []
    mesh.ends(first, CANCELLED)
    assert [each.position for each in gone_on_from(mesh.view.replays, spec)] == [40]

    others = (to_topic(), to_topic(group="another"), to_topic(group="mesh-replay-1", cluster="c2"))
    assert [list(gone_on_from(mesh.view.replays, other)) for other in others] == [[], [], []]
    assert gone_on_from(mesh.view.replays, to_topic(group="mesh-replay-1", dry_run=True)) == []
