"""Logs over several clusters: the parts of a topic, its forks, all forks, and a new fork."""

from __future__ import annotations

from mesh.rpc import topics
from mesh.wording import short
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here, time_of, wrong
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Control, Field, Form, Moved, Notice, Page, Part, Table, Tone
from services.console.views.rules import cluster_field

PART_COLUMNS = ("Cluster", "Name there", "Offsets", "Size", "Moved on", "Expires", "Needs its cluster")
FORK_COLUMNS = ("Fork", "Of", "Own records on", "Past on", "Partitions", "Past, bytes a second", "Made")
MOST_FORKS = 100
FORK_TIMEOUT_S = 60.0
"""Control asks both clusters, and makes the topic."""


async def parts_of(ask: Ask, topic: str) -> list[Part]:
    """The parts of a topic's log, if there are several, and its forks. Nothing, if no rule leads the topic anywhere."""
    stubs, parts = ask.caller.stubs, list[Part]()
    try:
        found = await ask.caller.call(stubs.topics.GetTopicParts, topics.GetTopicPartsRequest(name=f"topics/{topic}"))
        request = topics.ListTopicForksRequest(source_topic=topic, page_size=MOST_FORKS)
        forks = await ask.caller.call(stubs.topics.ListTopicForks, request)
    except CallError as failure:
        if failure.code == "NOT_FOUND":
            return []
        return [Notice(f"The parts of its log are not known: {failure}", Tone.WARNING)]
    if len(found.parts) > 1:
        parts += [Notice(each, Tone.WARNING) for each in found.problems]
        parts.append(Table("Parts of its log", PART_COLUMNS, list(map(_part, found.parts)), ""))
    if forks.forks:
        more = here("/forks", of=topic) if forks.next_page_token else ""
        parts.append(Table("Its forks", FORK_COLUMNS, list(map(_fork, forks.forks)), "", more=more))
    return parts


def _part(of: topics.TopicPart) -> Cells:
    offsets = "; ".join(f"{each.partition}: {each.start:,} to {each.end:,}" for each in of.partitions[:MOST_FORKS])
    past = f", past of {of.past_of}" if of.past_of else ""
    return [
        of.cluster, of.upstream_topic + past, offsets or words.NONE,
        words.size(of.size_bytes) if of.HasField("size_bytes") else words.NONE, words.moment(of.end_time),
        words.moment(of.expire_time), of.expiry or words.NONE,
    ]  # fmt: skip


def _fork(of: topics.TopicFork) -> Cells:
    name = short(of.name)
    rate = words.size(of.past_bytes_per_second) if of.past_bytes_per_second else "no bound"
    return [
        Cell(name, here(f"/topics/{name}")), Cell(of.source_topic, here(f"/topics/{of.source_topic}")), of.cluster,
        ", ".join(of.past_clusters) or "expired", f"{len(of.partitions):,}", rate, words.moment(of.create_time),
    ]  # fmt: skip


async def forks(ask: Ask) -> Page:
    request = topics.ListTopicForksRequest(source_topic=ask.said("of"), page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.topics.ListTopicForks, request)
    rows = list(map(_fork, answer.forks))
    parts: list[Part] = [
        Table("Forks", FORK_COLUMNS, rows, "No topic is a fork.", more=ask.more(answer.next_page_token))
    ]
    if ask.may_change:
        parts.append(await fork_form(ask))
    lead = "A fork begins with the records of another topic, which are not copied, and gets records of its own."
    return Page("Forks", parts, lead=lead)


async def fork_form(ask: Ask) -> Form:
    fields = (
        Field("source_topic", "Topic", value=ask.said("of"), required=True),
        Field("topic", "Name of the fork", required=True),
        await cluster_field(ask, ""),
        Field("offset", "End of the past: offset", help="Of each partition. Empty: the time below."),
        Field("time", "End of the past: time, in UTC", Control.TIME, help="Empty, and no offset: now."),
        Field("rate", "Bytes a second of the past, at most", help="Of each gateway. Empty: no bound."),
    )
    return change("Fork a topic", "/forks/start", "Make the fork", *fields)


async def fork(ask: Ask) -> Moved:
    request = topics.ForkTopicRequest(
        source_topic=ask.said("source_topic"), topic=ask.said("topic"), target_cluster=ask.said("target_cluster"),
        past_bytes_per_second=ask.number("rate"), reason=ask.said("reason"), request_id=ask.said("request_id"),
    )  # fmt: skip
    time = time_of(ask, "time")
    if ask.said("offset") and time is not None:
        raise wrong("offset", "says one end of the past, and the time says another: leave one out")
    if ask.said("offset"):
        request.offset = ask.number("offset")
    elif time is not None:
        request.time.CopyFrom(time)
    else:
        request.latest = True
    await ask.caller.call(ask.caller.stubs.topics.ForkTopic, request, timeout_s=FORK_TIMEOUT_S)
    return Moved(here(f"/topics/{request.topic}"))
