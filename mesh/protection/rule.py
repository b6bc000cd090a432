"""One rule about the values of topics: what is protected, by which key, who reads it, and what all others get."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesh.record_transforms import JsonPath, json_path

EVERYONE: Final = "User:*"
"""The reader that stands for every client."""


class What(Enum):
    """The part of a record that a rule protects."""

    VALUE = "value"
    """The whole value, whatever it is."""
    JSON = "json"
    """Fields of values that are JSON, with or without the prefix of a schema registry."""
    AVRO = "avro"
    """Fields of values that are Avro, with the prefix of a schema registry."""


class Others(Enum):
    """The answer to clients that are no readers."""

    MASK = "mask"
    CIPHERTEXT = "ciphertext"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. All rules that match a topic count; no two of them may protect the same (`overlap`)."""

    rule_id: str
    name: str
    """The topic, or the prefix of topics; an empty prefix stands for every topic."""
    is_prefix: bool = False
    what: What = What.VALUE
    fields: tuple[str, ...] = ()
    """Paths as in `mesh.record_transforms`; none for a whole value."""
    key_id: str = ""
    """The key by which new values are encrypted. Empty: they are stored as they come, and masked on reading alone."""
    readers: tuple[str, ...] = ()
    """`User:NAME`, `Group:NAME`, or `User:*` for everyone: those who get the clear value."""
    others: Others = Others.MASK
    requires_fields: bool = False
    """A record without one of the fields is refused; if not, it passes."""
    origin_topics: tuple[str, ...] = ()
    """Topics of which these hold copies by mirrors: values that were encrypted there are read here, too."""

    def matches(self, topic: str) -> bool:
        return topic.startswith(self.name) if self.is_prefix else topic == self.name

    def is_for(self, principals: Collection[str]) -> bool:
        """Whether a client that is all these reads the clear value."""
        return EVERYONE in self.readers or any(each in self.readers for each in principals)

    @property
    def paths(self) -> tuple[JsonPath, ...]:
        """InvalidTransformError if one of the fields is no path."""
        return tuple(map(json_path, self.fields))

    @property
    def topics(self) -> str:
        """ "topic 'orders'", "topics 'orders.'*", "every topic"."""
        if not self.is_prefix:
            return f"topic {self.name!r}"
        return f"topics {self.name!r}*" if self.name else "every topic"

    def __str__(self) -> str:
        what = "the value" if self.what is What.VALUE else f"{', '.join(self.fields)} of {self.what.value}"
        by = f"encrypted by key {self.key_id!r}" if self.key_id else "stored as it comes"
        readers = f"{', '.join(self.readers)} read it" if self.readers else "nobody reads it"
        more = ", records need these fields" if self.requires_fields else ""
        more += f", copies of {', '.join(self.origin_topics)}" if self.origin_topics else ""
        return f"{self.rule_id}: for {self.topics} {what} is {by}, {readers}, others get a {self.others.value}{more}"


def path_text(path: JsonPath) -> str:
    """One text for each path, however its rule writes it."""
    return json.dumps(path, separators=(",", ":"))


def overlap(one: Rule, other: Rule) -> str:
    """The part of one record that both rules would protect, in words; empty if there is none."""
    if not _may_meet(one, other):
        return ""
    if What.VALUE in (one.what, other.what):
        return "the whole value"
    if one.what is not other.what:
        return f"values that are {one.what.value}, and values that are {other.what.value}"
    for field, path in zip(one.fields, one.paths, strict=True):
        for theirs in other.paths:
            if _contains(path, theirs) or _contains(theirs, path):
                return f"field {field}"
    return ""


def within_another(paths: tuple[JsonPath, ...]) -> bool:
    """Whether one of the paths is equal to another one, or leads through it."""
    return any(
        _contains(one, other) for at, one in enumerate(paths) for place, other in enumerate(paths) if at != place
    )


def _contains(outer: JsonPath, inner: JsonPath) -> bool:
    return inner[: len(outer)] == outer


def _may_meet(one: Rule, other: Rule) -> bool:
    """Whether some topic is of both."""
    if one.is_prefix and other.is_prefix:
        return one.name.startswith(other.name) or other.name.startswith(one.name)
    return one.matches(other.name) if one.is_prefix else other.matches(one.name)
