"""Standbys of clusters as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mesh.rpc import events


def _started(event: events.Event) -> str:
    standby = event.standby_started.standby
    spec = standby.spec
    topics = f"the topics {spec.topics}" if spec.topics else "the topics"
    return f"{standby.name}: {spec.target_cluster} keeps copies of {topics} of {spec.source_cluster}"


def _topics_set(event: events.Event) -> str:
    found = event.standby_topics_set
    left = [each for each in found.topics if each.left]
    lost = sum(each.lag_records for each in found.topics)
    text = f"{found.name}: {len(found.topics) - len(left)} topics have copies"
    if left:
        text += f", {len(left)} have none: {left[0].topic}: {left[0].problem}"
    return f"{text}; the copies lack {lost} records" if lost else text


def _acls_set(event: events.Event) -> str:
    found = event.standby_acls_set
    text = f"{found.name}: the standby has {len(found.acls)} ACLs of its cluster"
    return f"{text}; {found.problem}" if found.problem else text


SENTENCES: Final[dict[str, Callable[[events.Event], str]]] = {
    "standby_started": _started,
    "standby_topics_set": _topics_set,
    "standby_acls_set": _acls_set,
    "standby_ended": lambda event: f"{event.standby_ended.name} has ended, its copies stay",
    "fail_over_begun": lambda event: f"{event.fail_over_begun.name} fails over: routers copy no more",
    "fail_over_held": lambda event: (
        f"{event.fail_over_held.name}: all gateways hold, and ask {event.fail_over_held.source_cluster} no more"
    ),
    "fail_over_ended": lambda event: f"{event.fail_over_ended.name} has failed over: the topics are on their copies",
}
