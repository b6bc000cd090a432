"""Compares two answers to one request, field by field, as the rules say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from judge.protocol.schema import Message
from judge.replay.bindings import NO_VALUE
from judge.replay.codec import UNKNOWN_TAGS
from judge.replay.rules import How, Rule, rule_of
from judge.replay.specification import Field
from judge.replay.walking import key_of, pairs

NOT_TOLD = -(2**31)
"""Kafka's value for operations that a client did not ask for."""


class Missing:
    """In the place of a value: this side has nothing there."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    """By names, `[]` for any element."""
    place: str
    """By names and keys of elements."""
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    api: str
    rules: Sequence[Rule]

    def differences(self, fields: Sequence[Field], a: Message, b: Message) -> Iterator[Difference]:
        yield from self._struct(fields, a, b, "", "")
        if a.get(UNKNOWN_TAGS) != b.get(UNKNOWN_TAGS):
            yield Difference(UNKNOWN_TAGS, UNKNOWN_TAGS, a.get(UNKNOWN_TAGS), b.get(UNKNOWN_TAGS))

    def _struct(self, fields: Sequence[Field], a: Message, b: Message, path: str, place: str) -> Iterator[Difference]:
        for field in fields:
            if field.name not in a and field.name not in b:
                continue
            at, here = f"{path}{field.name}", f"{place}{field.name}"
            how = self._how(at, here)
            if how in (How.IGNORED, How.LOG):
                continue
            left, right = a.get(field.name), b.get(field.name)
            if field.is_array and left is not None and right is not None:
                yield from self._array(field, left, right, at, here, how)
            elif field.parts and left is not None and right is not None:
                yield from self._struct(field.parts, left, right, f"{at}.", f"{here}.")
            elif not _agree(left, right, how):
                yield Difference(at, here, left, right)

    def _how(self, path: str, place: str) -> How | None:
        rule = rule_of(self.rules, self.api, path, place)
        return rule.how if rule else None

    def _array(
        self, field: Field, a: list[Any], b: list[Any], path: str, place: str, how: How | None
    ) -> Iterator[Difference]:
        path = f"{path}[]"
        if not field.parts:
            if how is How.THERE and bool(a) == bool(b):
                return
            if a != b and not (how is How.UNORDERED and sorted(a) == sorted(b)):
                yield Difference(path, f"{place}[]", a, b)
            return
        if how is How.NEWS:
            a, b = _news(a, b), _news(b, a)

        def key(element: Message) -> object:
            return key_of(element, field.parts, lambda _, value: value)

        keys = [key(each) for each in a], [key(each) for each in b]
        if how not in (How.UNORDERED, How.NEWS) and keys[0] != keys[1] and set(keys[0]) == set(keys[1]):
            yield Difference(
                f"{path} order", f"{place}[] order", list(map(_named, keys[0])), list(map(_named, keys[1]))
            )
        for left, right in pairs(a, b, key, key):
            here = f"{place}[{_named(key(right if left is None else left))}]"
            if left is not None and right is not None:
                yield from self._struct(field.parts, left, right, f"{path}.", f"{here}.")
            elif self._how(path, here) is not (How.FEWER if right is None else How.MORE):
                yield Difference(path, here, MISSING if left is None else left, MISSING if right is None else right)


def _agree(a: Any, b: Any, how: How | None) -> bool:
    if a == b:
        return True
    if how is How.THERE:
        return (a in NO_VALUE) == (b in NO_VALUE)
    if how is How.UNTOLD:
        return bool(b == NOT_TOLD)
    if how is How.HIDDEN:
        return b in NO_VALUE
    return (how is How.AT_LEAST and b > a) or (how is How.AT_MOST and b < a)


def _named(key: object) -> str:
    if not isinstance(key, tuple):
        return ""
    return " ".join(value.hex() if isinstance(value, bytes) else str(value) for _, value in key)


def _news(topics: Sequence[Message], others: Sequence[Message]) -> list[Message]:
    """The parts of a poll that must be in the other answer, too: each topic once."""
    there = {place for place, partition in _places(others) if partition.get("Records")}
    wrong = {place for place, partition in (*_places(topics), *_places(others)) if partition["ErrorCode"]}
    found: dict[object, Message] = {}
    for topic in topics:
        news = [
            partition
            for place, partition in _places([topic])
            if place in wrong or (partition.get("Records") and place in there)
        ]
        if news:
            known = found.setdefault(_topic(topic), {**topic, "Partitions": []})
            known["Partitions"] += news
    for topic in found.values():
        topic["Partitions"].sort(key=lambda partition: partition["PartitionIndex"])
    return list(found.values())


def _places(topics: Sequence[Message]) -> Iterator[tuple[tuple[object, int], Message]]:
    for topic in topics:
        for partition in topic["Partitions"]:
            yield (_topic(topic), partition["PartitionIndex"]), partition


def _topic(topic: Message) -> object:
    return topic.get("Topic") or topic.get("TopicId")
