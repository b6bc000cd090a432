"""Fail-backs of clusters as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from mesh.rpc import events, fail_backs
from mesh.wording import word


def _started(event: events.Event) -> str:
    found = event.fail_back_started.fail_back
    place = "to a topic of their own"
    if found.spec.strays == fail_backs.STRAY_POLICY_APPEND:
        place = "behind the records of their topics"
    return f"{found.name}: the topics go back from {found.clients_cluster} to {found.spec.cluster}; strays go {place}"


def _topics_set(event: events.Event) -> str:
    found = event.fail_back_topics_set
    if len(found.topics) == 1:
        [topic] = found.topics
        text = f"{found.name}: topic {topic.topic} is {word(fail_backs.FailBackTopicState, topic.state)}"
        strays = sum(each.strays for each in topic.partitions)
        text += f", with {strays} strays in {topic.strays_topic}" if strays else ""
        return f"{text}: {topic.problem}" if topic.problem else text
    states = Counter(word(fail_backs.FailBackTopicState, each.state) for each in found.topics)
    return f"{found.name}: " + ", ".join(f"{number} topics are {state}" for state, number in sorted(states.items()))


SENTENCES: Final[dict[str, Callable[[events.Event], str]]] = {
    "fail_back_started": _started,
    "fail_back_topics_set": _topics_set,
    "fail_back_moving": lambda event: f"{event.fail_back_moving.name}: {event.fail_back_moving.drain} moves the topics",
    "fail_back_ended": lambda event: (
        f"{event.fail_back_ended.name} is {word(fail_backs.FailBackState, event.fail_back_ended.state)}"
    ),
}
