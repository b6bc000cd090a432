"""One rule about the records of topics: its topics, its effect, and its conditions in Kafka's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

LONGEST_SHOWN: Final = 200
"""Characters of a rule's own schema that its text shows."""


class Mode(Enum):
    """The effect of a rule."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    MARK = "mark"
    """Records that break the rule are stored with a header that says why."""


class Compression(IntEnum):
    """As in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def word(self) -> str:
        return self.name.lower()


class Key(Enum):
    """Whether records have keys."""

    REQUIRED = "required"
    FORBIDDEN = "forbidden"


class ValueSchema(Enum):
    """The schema of a registry that each value names."""

    ANY = "any"
    """Any one that the registry has."""
    SUBJECT = "subject"
    """One of the subject TOPIC-value."""


class Content(Enum):
    """The schema by which each value is valid."""

    NAMED = "named"
    """The one that the value names."""
    SUBJECT = "subject"
    """The latest JSON Schema of a subject: values are JSON without a name of their schema."""
    GIVEN = "given"
    """The rule's own JSON Schema."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. A field with its default is no condition."""

    rule_id: str
    name: str
    """The topic, or the prefix of topics; an empty prefix stands for every topic."""
    is_prefix: bool = False
    mode: Mode = Mode.ENFORCE
    compression_types: tuple[Compression, ...] = ()
    max_message_bytes: int = 0
    acks_all: bool = False
    enable_idempotence: bool = False
    message_timestamp_after_max_ms: int | None = None
    key: Key | None = None
    tombstones_forbidden: bool = False
    required_headers: tuple[str, ...] = ()
    max_record_bytes: int = 0
    value_schema: ValueSchema | None = None
    stores_unchecked: bool = False
    """Batches whose schemas the registry can't tell now are stored."""
    content: Content | None = None
    content_schema: str = ""
    """The subject, or the text of the JSON Schema, as `content` says."""
    dead_letter_topic: str = ""
    """Refused records are written there first."""
    message_format_v2: bool = False
    key_by_named_schema: bool = False
    new_name_regex: str = ""
    """RE2, for the names of topics that clients create; such a rule is about no record."""
    principals: tuple[str, ...] = ()
    """The clients that `new_name_regex` is for; a last * stands for any end. Empty: all."""

    @property
    def asks_registry(self) -> bool:
        named = self.value_schema is not None or self.key_by_named_schema
        return named or self.content in (Content.NAMED, Content.SUBJECT)

    @property
    def opens_records(self) -> bool:
        """Whether the header of a batch is not enough to check it."""
        return bool(
            self.key
            or self.tombstones_forbidden
            or self.required_headers
            or self.max_record_bytes
            or self.value_schema
            or self.content
            or self.key_by_named_schema
        )

    def is_for(self, principals: Iterable[str]) -> bool:
        """Whether a client with these principals, its groups included, is bound by `new_name_regex`."""
        return not self.principals or any(_fits(wanted, each) for wanted in self.principals for each in principals)

    def matches(self, topic: str) -> bool:
        return topic.startswith(self.name) if self.is_prefix else topic == self.name

    @property
    def conditions(self) -> list[str]:
        """As one writes them in Kafka's configuration: "compression.type is zstd or lz4"."""
        return list(self._conditions())

    def _conditions(self) -> Iterator[str]:
        if self.compression_types:
            yield f"compression.type is {' or '.join(each.word for each in self.compression_types)}"
        if self.max_message_bytes:
            yield f"max.message.bytes is {self.max_message_bytes}"
        if self.acks_all:
            yield "acks is all"
        if self.enable_idempotence:
            yield "enable.idempotence is true"
        if self.message_format_v2:
            yield "the message format is v2"
        if self.message_timestamp_after_max_ms is not None:
            yield f"message.timestamp.after.max.ms is {self.message_timestamp_after_max_ms}"
        if self.key is not None:
            yield f"a key is {self.key.value}"
        if self.tombstones_forbidden:
            yield "tombstones are forbidden"
        for name in self.required_headers:
            yield f"header {name!r} is required"
        if self.max_record_bytes:
            yield f"a record has at most {self.max_record_bytes} bytes"
        away = " (stored while the registry is away)" if self.stores_unchecked else ""
        if self.value_schema is not None:
            of_subject = " of subject TOPIC-value" if self.value_schema is ValueSchema.SUBJECT else ""
            yield f"a value names a registered schema{of_subject}{away}"
        if self.key_by_named_schema:
            yield f"a key is valid by the schema that it names{away}"
        if self.new_name_regex:
            by = f" by {' or '.join(self.principals)}" if self.principals else ""
            yield f"the name of a topic that is created{by} matches {self.new_name_regex}"
        match self.content:
            case Content.NAMED:
                yield f"a value is valid by the schema that it names{away}"
            case Content.SUBJECT:
                yield f"a value is JSON by the latest schema of subject {self.content_schema!r}{away}"
            case Content.GIVEN:
                shown, more = self.content_schema[:LONGEST_SHOWN], self.content_schema[LONGEST_SHOWN:]
                yield f"a value is JSON by the schema {shown}{'…' if more else ''}"

    @property
    def topics(self) -> str:
        """ "topic 'orders'", "topics 'orders.'*", "every topic"."""
        if not self.is_prefix:
            return f"topic {self.name!r}"
        return f"topics {self.name!r}*" if self.name else "every topic"

    def __str__(self) -> str:
        letters = f"; dead letters in topic {self.dead_letter_topic!r}" if self.dead_letter_topic else ""
        return f"{self.rule_id} ({self.mode.value}): for {self.topics} {', '.join(self.conditions)}{letters}"


def _fits(wanted: str, principal: str) -> bool:
    return principal.startswith(wanted[:-1]) if wanted.endswith("*") else principal == wanted
