"""A position as JSON, the form in which Spark keeps it in the checkpoint. One entry for each topic:

    {"apples": {"id": "WfM1...", "next": {"0": 120, "1": 98}, "from": {"1": 0}, "last": {"0": [119, 1790000000000]}}}

The entry of a topic that moved has more: "at", "generation", and "former" with its stays by cluster. Absent fields have
their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.pipeline.kafka.positions import Position, Stamp, Stay, TopicPosition


def parse(document: Mapping[str, Any]) -> Position:
    """A position from its JSON form."""
    return {
        topic: TopicPosition(
            entry["id"],
            _by_number(entry["next"]),
            _by_number(entry["from"]),
            _stamps(entry),
            entry.get("generation", 0),
            entry.get("at", ""),
            {cluster: _stay(stay) for cluster, stay in entry.get("former", {}).items()},
            planned_ms=entry.get("planned", 0),
        )
        for topic, entry in document.items()
    }


def _stay(entry: Mapping[str, Any]) -> Stay:
    return Stay(
        _by_number(entry["next"]),
        _stamps(entry),
        entry.get("generation", 0),
        _by_number(entry.get("from", {})),
        _by_number(entry["until"]) if "until" in entry else None,
        entry.get("id", ""),
        entry.get("place", ""),
    )


def _stamps(entry: Mapping[str, Any]) -> dict[int, Stamp]:
    return {int(partition): Stamp(*stamp) for partition, stamp in entry.get("last", {}).items()}


def _by_number(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def render(position: Position) -> dict[str, Any]:
    """The JSON form. Spark compares positions as text, so equal positions have equal text."""
    return {
        topic: {"id": entry.topic_id, "from": _by_text(entry.starts)}
        | _rendered(entry)
        | ({"at": entry.at} if entry.at else {})
        | (
            {"former": {name: _rendered_stay(stay) for name, stay in sorted(entry.former.items())}}
            if entry.former
            else {}
        )
        | ({"planned": entry.planned_ms} if entry.planned_ms else {})
        for topic, entry in sorted(position.items())
    }


def _rendered_stay(stay: Stay) -> dict[str, Any]:
    return (
        _rendered(stay)
        | ({"from": _by_text(stay.starts)} if stay.starts else {})
        | ({"until": _by_text(stay.until)} if stay.until is not None else {})
        | ({"id": stay.topic_id} if stay.topic_id else {})
        | ({"place": stay.place} if stay.place else {})
    )


def _rendered(entry: TopicPosition | Stay) -> dict[str, Any]:
    last = {str(partition): list(stamp) for partition, stamp in sorted(entry.last.items())}
    return (
        {"next": _by_text(entry.next)}
        | ({"last": last} if last else {})
        | ({"generation": entry.generation} if entry.generation else {})
    )


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
