"""The lag of a group over time: which partitions are behind and since when, and all of them in the last hours."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.duration_pb2 import Duration

from mesh.lag_wording import behind, outlook, sampling, totals
from mesh.rpc import topics
from services.console import words
from services.console.asking import Ask
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Notice, Part, Table, Tone

MOST_PARTITIONS = 300
STEP = Duration(seconds=900)
"""A quarter of an hour: 24 rows."""


async def parts_of(ask: Ask, group: str) -> list[Part]:
    """Tables; a sentence alone if control has no samples of the group."""
    request = topics.QueryLagRequest(name=f"groups/{group}", step=STEP, page_size=MOST_PARTITIONS)
    try:
        answer = await ask.caller.call(ask.caller.stubs.groups.QueryLag, request)
    except CallError as failure:
        return [Notice(f"The lag over time is not known: {failure.text}")]
    late = sorted((each for each in answer.partitions if each.last.records), key=lambda each: -each.last.records)
    rows: list[Cells] = [
        [
            Cell(each.topic, f"/topics/{each.topic}"), each.partition, f"{each.last.records:,}", behind(each.last),
            _since(each), words.age(each.growing_since) if each.HasField("growing_since") else words.NONE,
            outlook(each),
        ]
        for each in late
    ]  # fmt: skip
    left = answer.total - len(answer.partitions)
    note = f"{left:,} more partitions are not in these tables." if left > 0 else ""
    columns = ("Topic", "Partition", "Records", "Behind", "Since", "Grows since", "Outlook")
    course = totals(answer.partitions)
    most = max((each.records for each in course), default=0)
    over_time: list[Cells] = [
        [
            datetime.fromtimestamp(each.time_s, UTC).strftime("%Y-%m-%d %H:%M UTC"),
            Cell(f"{each.records:,}", done=each.records / most if most else 0.0),
            behind(each.oldest) if each.oldest else words.NONE,
        ]
        for each in reversed(course)
    ]
    return [
        *(Notice(each, Tone.WARNING) for each in sampling(answer.sampling)),
        Table("Partitions that are behind", columns, rows, "No partition is behind.", note),
        Table(
            "Lag in the last six hours", ("Time", "Records", "Behind"), over_time,
            "Control has no samples that are old enough.",
        ),
    ]  # fmt: skip


def _since(of: topics.PartitionLag) -> str:
    if not of.HasField("above_since"):
        return words.NONE
    return f"{'more than ' if of.above_for_longer else ''}{words.age(of.above_since)}"
