"""Consumer groups of all clusters: a list in pages, a page for each; a reset with its plan first, and undo."""

from __future__ import annotations

from mesh.rpc import replays, topics
from mesh.wording import short, word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, choice, here, search, tick, time_of, wrong
from services.console.parts import (
    Cell,
    Cells,
    Control,
    Facts,
    Field,
    Form,
    Item,
    Moved,
    Notice,
    Page,
    Part,
    Table,
    Tone,
    hidden,
)
from services.console.views.lag import parts_of
from services.console.views.topics import not_known

STATES = {
    word(topics.ConsumerGroupState, number): number
    for number in topics.ConsumerGroupState.values()
    if number != topics.CONSUMER_GROUP_STATE_UNSPECIFIED
}
MOST_ROWS = 300
PLACES = ("start", "end", "offset", "time")
RESET_FIELDS = ("group", "topic", "partition", "to", "offset", "time", "stop", "undoes")
PLAN_TIMEOUT_S = 30.0


def page_of(group: str) -> str:
    return here(f"/groups/{group}")


def _state(of: topics.ConsumerGroup) -> Cell:
    return words.toned(word(topics.ConsumerGroupState, of.state))


def _optional(of: topics.ConsumerGroup, name: str) -> str:
    return f"{getattr(of, name):,}" if of.HasField(name) else words.NONE  # type: ignore[arg-type]  # one of its fields


async def listing(ask: Ask) -> Page:
    part, state = ask.said("part"), ask.said("state")
    if state and state not in STATES:
        raise wrong("state", f"{state!r} is none of {', '.join(STATES)}")
    request = topics.ListGroupsRequest(part=part, page_size=PAGE_SIZE, page_token=ask.page_token)
    if state:
        request.state = STATES[state]
    answer = await ask.caller.call(ask.caller.stubs.groups.ListGroups, request)
    rows: list[Cells] = [
        [
            Cell(short(each.name), page_of(short(each.name))),
            _state(each),
            word(topics.ConsumerGroupType, each.type),
            each.home or "none",
            _optional(each, "members"),
            _optional(each, "lag"),
        ]
        for each in answer.groups
    ]
    shown = f"{len(rows):,} of {words.count(answer.total, 'group')}."
    columns = ("Group", "State", "Protocol", "Home", "Members", "Records behind")
    table = Table("Groups", columns, rows, "There is no such group.", shown, ask.more(answer.next_page_token))
    form = search(
        "/groups", "Show", Field("part", "Name has", value=part), choice("state", "State", state, "", *STATES),
        title="Filter",
    )  # fmt: skip
    return Page("Groups", [form, *not_known(answer.problems), table], lead="Consumer groups over all clusters.")


async def one(ask: Ask) -> Page:
    name = ask.parameters["group"]
    answer = await ask.caller.call(ask.caller.stubs.groups.GetGroup, topics.GetGroupRequest(name=f"groups/{name}"))
    of = answer.group
    facts: list[Item] = [
        ("State", _state(of)),
        ("Protocol", word(topics.ConsumerGroupType, of.type)),
        ("Home", of.home or "none: clusters only keep its offsets"),
        ("Clusters that know it", ", ".join(of.clusters)),
        ("Members", _optional(of, "members")),
        ("Records behind", _optional(of, "lag")),
    ]
    members: list[Cells] = [
        [each.client_id, each.instance_id or words.NONE, each.host, f"{each.partitions:,}", each.member_id]
        for each in answer.members[:MOST_ROWS]
    ]
    positions: list[Cells] = [
        [
            Cell(each.topic, f"/topics/{each.topic}"), each.partition, each.cluster, f"{each.committed:,}",
            f"{each.end:,}" if each.end >= 0 else words.NONE, _behind(each),
        ]
        for each in answer.positions[:MOST_ROWS]
    ]  # fmt: skip
    left = len(answer.positions) - len(positions)
    note = f"{left:,} more partitions are not shown." if left else ""
    empty = "It has committed no offset." if of.HasField("lag") else "Its offsets are not known."
    alone = "It has no member." if of.HasField("members") else "Its members are not known."
    columns = ("Topic", "Partition", "Cluster", "Committed", "End", "Behind")
    parts: list[Part] = [
        *not_known(answer.problems),
        Facts("Group", facts),
        Table("Positions", columns, positions, empty, note),
        *await parts_of(ask, name),
        Table("Members", ("Client id", "Instance id", "Address", "Partitions", "Member"), members, alone),
    ]
    if ask.may_change and of.type != topics.CONSUMER_GROUP_TYPE_SHARE:  # control would refuse the reset
        parts.append(_reset_form(name, tuple(dict.fromkeys(each.topic for each in answer.positions))))
    links = [Cell("Why its home is there", here("/explain", about="group", name=name))]
    return Page(f"Group {name}", parts, links=links)


def _behind(of: topics.GroupPosition) -> str:
    return f"{max(0, of.end - max(of.committed, of.start)):,}" if of.end >= 0 else words.NONE


def _reset_form(group: str, read: tuple[str, ...], topic: str = "") -> Form:
    about = choice("topic", "Topic", topic, *read) if read else Field("topic", "Topic", value=topic, required=True)
    return Form(
        "Reset its offsets",
        "/resets/check",
        "Show the plan",
        (
            hidden("group", group) if group else Field("group", "Group", required=True),
            about,
            Field("partition", "Partition", help="Empty: all."),
            choice("to", "To", "start", *PLACES),
            Field("offset", "Offset", help="For an offset: of one partition."),
            Field("time", "Time (UTC)", Control.TIME, help="For a time."),
            tick("stop", "Pause members that sidecars hold"),
        ),
    )


async def new_reset(ask: Ask) -> Page:
    return Page("Reset a group", [_reset_form("", (), ask.said("topic"))], lead="The plan changes nothing.")


async def _spec(ask: Ask) -> replays.ReplaySpec:
    """The reset that the fields say."""
    group = ask.said("group")
    if not group:
        raise wrong("group", "is missing")
    by_group = replays.ReplayByGroup(group=group, stop=bool(ask.said("stop")))
    if undoes := ask.said("undoes"):
        return replays.ReplaySpec(ranges=await _before(ask, undoes), group=by_group)
    asked, to = replays.ReplayRange(topic=ask.said("topic")), ask.said("to")
    if not asked.topic:
        raise wrong("topic", "is missing")
    if ask.said("partition"):
        asked.partition = _partition(ask)
    match to:
        case "start":
            pass
        case "end":
            asked.start_at_end = True
        case "offset":
            if not ask.said("offset"):
                raise wrong("offset", "is missing")
            asked.start_offset = ask.number("offset")
        case "time":
            moment = time_of(ask, "time")
            if moment is None:
                raise wrong("time", "is missing")
            asked.start_time.CopyFrom(moment)
        case _:
            raise wrong("to", f"{to!r} is none of {', '.join(PLACES)}")
    return replays.ReplaySpec(ranges=[asked], group=by_group)


def _partition(ask: Ask) -> int:
    number = ask.number("partition")
    if number >= 2**31:
        raise wrong("partition", f"{number} is too large")
    return number


async def _before(ask: Ask, name: str) -> list[replays.ReplayRange]:
    """The offsets that the group had before a reset."""
    request = replays.GetReplayRequest(name=f"replays/{name}")
    found = await ask.caller.call(ask.caller.stubs.replays.GetReplay, request)
    ranges = [
        replays.ReplayRange(topic=each.topic, partition=each.partition, start_offset=each.committed_before)
        for each in found.partitions
        if each.committed_before >= 0
    ]
    if not ranges:
        raise wrong("undoes", f"replay {name!r} has no offset of before that could come back")
    return ranges


async def check_reset(ask: Ask) -> Page:
    """The plan of a reset, and the form that confirms it."""
    spec = await _spec(ask)
    spec.dry_run = True  # control counts it as a call that decides: it asks for the same role
    request = replays.StartReplayRequest(spec=spec)
    planned = await ask.caller.call(ask.caller.stubs.replays.StartReplay, request, timeout_s=PLAN_TIMEOUT_S)
    rows: list[Cells] = [
        [
            each.topic, each.partition,
            f"{each.committed_before:,}" if each.committed_before >= 0 else "none",
            f"{each.start_offset:,}", f"{each.end_offset:,}", _difference(each),
        ]
        for each in planned.partitions[:MOST_ROWS]
    ]  # fmt: skip
    left = len(planned.partitions) - len(rows)
    note = f"{left:,} more partitions are not shown." if left else ""
    columns = ("Topic", "Partition", "Committed now", "New offset", "End", "Then it")
    parts: list[Part] = []
    if planned.description:
        parts.append(Notice(planned.description))
    if planned.stopped:
        paused = [Cell(short(each), f"/{each}") for each in planned.stopped]
        parts.append(Notice("These instances pause, and go on after the reset", Tone.WARNING, paused))
    parts.append(Table("Plan", columns, rows, "The reset sets no offset.", note))
    if planned.partitions:
        fields = [hidden(name, ask.said(name)) for name in RESET_FIELDS if ask.said(name)]
        parts.append(change("Confirm", "/resets/start", "Reset the group", *fields, tone=Tone.BAD))
    return Page(f"Plan: reset group {ask.said('group')}", parts, lead="Nothing has changed yet.")


def _difference(of: replays.ReplayPartition) -> Cell:
    before, after = of.committed_before, of.start_offset
    if before < 0:
        return Cell("begins there")
    if after < before:
        return Cell(f"reads {words.count(before - after, 'offset')} again")
    if after > before:
        return Cell(f"skips {words.count(after - before, 'offset')}", tone=Tone.WARNING)
    return Cell("stays")


async def reset(ask: Ask) -> Moved:
    request = replays.StartReplayRequest(
        spec=await _spec(ask), reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    made = await ask.caller.call(ask.caller.stubs.replays.StartReplay, request, timeout_s=PLAN_TIMEOUT_S)
    return Moved(f"/replays/{short(made.name)}")
