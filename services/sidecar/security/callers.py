"""The permissions of a caller: scopes, and the topics to which a scope may be narrowed.

A scope allows operations; the OpenAPI document names the scope of each operation. A third part narrows `kafka:w` and
`kafka:r` to topics: `kafka:w:orders.*` allows the operations of `kafka:w` for topics whose whole name fits. `*` stands
for any characters, each other character for itself. Several narrowed scopes add up; the plain scope is for all topics.

To write to a topic, `kafka:w` must cover the topic. To read (subscribe, be assigned, seek, commit, get records),
`kafka:r` must cover the topic. A token that has no `kafka:r` at all may subscribe by its `kafka:w`, as in the original.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.sidecar.faults import Fault, FaultKind

EXPIRED = "Jwt token in authorization header expired"
"""The original's text."""
WRITE, READ, ADMIN = "kafka:w", "kafka:r", "kafka:admin"

_LITERAL = re.compile(r"(?P<plain>[A-Za-z0-9_-])|\\(?P<escaped>[._-])")
"""A character of a regular expression that stands for itself."""
_MAY_BE_NONE = ("*", "?", "{")
"""Characters of a regular expression that make the character before them optional."""


@dataclass(frozen=True, slots=True)
class Topics:
    """A set of topics, given by patterns with `*`."""

    patterns: tuple[str, ...]

    def covers(self, topic: str) -> bool:
        return any(fnmatch.fnmatchcase(topic, _escaped(pattern)) for pattern in self.patterns)

    def cover_all_of(self, expression: str) -> bool:
        """Whether these topics surely include every name that the whole expression fits, judged by its beginning."""
        beginning, is_whole = literal_beginning(expression)
        if is_whole:
            return self.covers(beginning)
        return any(
            pattern.endswith("*") and "*" not in pattern[:-1] and beginning.startswith(pattern[:-1])
            for pattern in self.patterns
        )

    def __str__(self) -> str:
        return " ".join(self.patterns) or "none"


EVERY_TOPIC, NO_TOPIC = Topics(("*",)), Topics(())


def _escaped(pattern: str) -> str:
    """Escapes the special characters of fnmatch other than `*`; a topic's name has none of them."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def literal_beginning(expression: str) -> tuple[str, bool]:
    """The sure beginning of every name that the expression fits, and whether that beginning is the whole name."""
    if "|" in expression:
        return "", False
    rest = expression.removeprefix("^")
    literal: list[str] = []
    while found := _LITERAL.match(rest):
        literal.append(found["plain"] or found["escaped"])
        rest = rest[found.end() :]
    if literal and rest.startswith(_MAY_BE_NONE):
        literal.pop()
    return "".join(literal), not rest


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller that a token identifies."""

    name: str
    """The name in the token, for log lines."""
    scopes: frozenset[str]
    """The scopes, without the part that narrows them to topics."""
    topics: dict[str, Topics] = field(default_factory=dict)
    """The topics of each narrowed scope; a scope that is missing here covers every topic."""
    expires_at: float = float("inf")
    """The wall clock time from which the token is invalid, with the allowed clock skew included."""

    @classmethod
    def of(cls, name: str, scopes: Iterable[str], expires_at: float = float("inf")) -> Caller:
        """A caller with the scopes of a token."""
        plain: set[str] = set()
        narrowed: dict[str, list[str]] = {}
        for scope in scopes:
            base, separator, pattern = _parted(scope)
            if separator:
                narrowed.setdefault(base, []).append(pattern)
            else:
                plain.add(scope)
        topics = {base: Topics(tuple(patterns)) for base, patterns in narrowed.items() if base not in plain}
        return cls(name, frozenset(plain | narrowed.keys()), topics, expires_at)

    def check_scopes(self, needed: Sequence[frozenset[str]]) -> None:
        """Raises Fault, with the original's text, unless the caller has all scopes of one of these sets."""
        if not any(scopes <= self.scopes for scopes in needed):
            has, *wants = (f"[{', '.join(sorted(scopes))}]" for scopes in (self.scopes, *needed))
            raise _mismatch(
                f"Scopes {has} in authorization token and specification scopes {' or '.join(wants)} are not matched"
            )

    @property
    def writes(self) -> Topics:
        return self._topics_of(WRITE)

    @property
    def reads(self) -> Topics:
        return self._topics_of(READ if READ in self.scopes else WRITE)

    @property
    def reads_everything(self) -> bool:
        return "*" in self.reads.patterns

    def check_writes(self, topics: Iterable[str]) -> None:
        """Raises Fault, with the name of the first topic that this caller may not write to."""
        _check(self.writes, topics, "written to")

    def check_reads(self, topics: Iterable[str], expression: str | None = None) -> None:
        """As `check_writes`, for topics to read, or for all topics that a subscription's expression may ever fit."""
        _check(self.reads, topics, "read")
        if expression is not None and not self.reads.cover_all_of(expression):
            text = f"Not every topic that fits {expression!r} may be read by this token, only {self.reads}"
            raise _mismatch(f"{text}; an expression has to begin as they do, with dots written \\\\.")

    def check_registers(self, subject: str, topic: str) -> None:
        """Raises Fault when a registry subject is named after a topic that this caller may not write to.

        `topic`: the topic of the request, which this caller may write to. A subject of this topic and a record is its
        own, too.
        """
        is_of_topic = subject.endswith(("-key", "-value"))
        if is_of_topic or not subject.startswith(f"{topic}-"):
            self.check_writes([subject.removesuffix("-value").removesuffix("-key")])

    def check_goes_on(self, topics: Iterable[str] = ()) -> None:
        """As `check_reads`, for a caller that was admitted earlier: the token may have expired since."""
        if self.expires_at <= time.time():
            raise Fault(FaultKind.AUTH_TOKEN_EXPIRED, EXPIRED)
        self.check_reads(topics)

    def _topics_of(self, scope: str) -> Topics:
        return self.topics.get(scope, EVERY_TOPIC if scope in self.scopes else NO_TOPIC)


ANYONE = Caller("anyone", frozenset({WRITE, READ}))
"""Every caller of a sidecar that asks for no tokens."""


def _parted(scope: str) -> tuple[str, str, str]:
    for base in (WRITE, READ):
        if scope.startswith(f"{base}:"):
            return base, ":", scope[len(base) + 1 :]
    return scope, "", ""


def _check(allowed: Topics, topics: Iterable[str], verb: str) -> None:
    for topic in topics:
        if not allowed.covers(topic):
            raise _mismatch(f"Topic {topic!r} may not be {verb} by this token, only {allowed}")


def _mismatch(text: str) -> Fault:
    return Fault(FaultKind.AUTH_TOKEN_SCOPE_MISMATCH, text)
