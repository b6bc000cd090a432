"""Names of topics on their own cluster, made from the names that clients use, and back.

Theory of operation
1. A template is literal text with placeholders: `{topic}`, the whole name; `{suffix}`, what follows the prefix of a
   prefix rule; `{1}` to `{9}`, the groups of a regex rule.
2. Every template can be read backwards, else Metadata could not name the topics that exist. `{topic}` and
   `{suffix}` always can. With groups the expression must be a plain row of literal text and groups, each of them used
   once in the template.
3. Reading backwards may guess wrong (`(.*)(.*)`): who asks has to check that the name leads forward again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import re2

from mesh.routing.errors import InvalidRuleError

FIELD = "upstream_topic"
TOPIC, SUFFIX = "topic", "suffix"
_PLACEHOLDER = re.compile(r"\{([a-z0-9]+)\}")
_LITERAL = re.compile(r"[A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """Both directions of one rule's template."""

    pieces: tuple[str, ...]
    """Literal text and names of placeholders in turn, beginning and ending with text."""
    prefix: str
    """The prefix of a prefix rule, else empty."""
    forward: Any
    """A regex rule's expression, where groups are used."""
    backward: Any
    """With groups: an expression for names on the cluster, with a group `pNAME` for each placeholder NAME."""
    origin: tuple[str, ...]
    """How clients' names are made of the groups: text and placeholders in turn, as `pieces`."""

    @classmethod
    def of(cls, text: str, *, prefix: str | None, pattern: str | None, single: bool) -> TopicTemplate:
        """The template of a rule with this prefix or expression, if it has one, or about a single topic. Raises
        InvalidRuleError."""
        pieces = tuple(_PLACEHOLDER.split(text))
        for literal in pieces[::2]:
            if not _LITERAL.fullmatch(literal):
                raise InvalidRuleError(
                    FIELD,
                    f"{text!r}: {literal!r} is neither text of a topic name (a-z, A-Z, 0-9, '.', '_', '-') nor a "
                    "placeholder: {topic}, {suffix} for prefix rules, {1} to {9} for regex rules",
                )
        names = pieces[1::2]
        if len(set(names)) != len(names):
            raise InvalidRuleError(FIELD, f"{text!r}: each placeholder may stand once")
        if names == (TOPIC,):
            return cls(pieces, "", None, None, ("", TOPIC, ""))
        if names == (SUFFIX,) and prefix is not None:
            return cls(pieces, prefix, None, None, (prefix, SUFFIX, ""))
        if not names and single:
            # the rule of one topic: `origin` is not needed, its name is the match's own
            return cls(pieces, "", None, None, ())
        if pattern is not None and names and all(name.isdigit() for name in names):
            return _of_groups(text, pieces, pattern)
        allowed = (
            "{topic} or {suffix}" if prefix is not None else "{topic} or its groups, as {1}" if pattern else "{topic}"
        )
        raise InvalidRuleError(
            FIELD,
            f"{text!r} gives two topics one name; a rule of this kind takes {allowed}, and nothing else",
        )

    def upstream(self, topic: str) -> str:
        """The name on the cluster of a topic that the rule matches."""
        if self.forward is not None:
            found = self.forward.fullmatch(topic)
            groups = ("", *(found.groups("") if found else ()))
            return _joined(
                self.pieces, {name: groups[int(name)] for name in self.pieces[1::2] if int(name) < len(groups)}
            )
        return _joined(self.pieces, {TOPIC: topic, SUFFIX: topic[len(self.prefix) :]})

    def virtual(self, upstream_topic: str) -> str | None:
        """The clients' name that would lead to this one; None where no name can, or the rule names one topic."""
        if not self.origin:
            return None
        if self.backward is None:
            return self._virtual_of_one(upstream_topic)
        found = self.backward.fullmatch(upstream_topic)
        if found is None:
            return None
        return _joined(self.origin, {name: found.group(f"p{name}") for name in self.origin[1::2]})

    def _virtual_of_one(self, upstream_topic: str) -> str | None:
        """With one placeholder, for which the rest of the name stands."""
        start, _, end = self.pieces
        if not (upstream_topic.startswith(start) and upstream_topic.endswith(end)):
            return None
        length = len(upstream_topic) - len(start) - len(end)
        if length < 0 or (length == 0 and self.origin[1] == TOPIC):
            return None
        return self.origin[0] + upstream_topic[len(start) : len(start) + length]


def _of_groups(text: str, pieces: tuple[str, ...], pattern: str) -> TopicTemplate:
    origin, expressions = _row_of(pattern)
    used = set(pieces[1::2])
    if used != set(expressions):
        raise InvalidRuleError(
            FIELD,
            f"{text!r} has to use every group of {pattern!r} once, or {{topic}} instead: "
            f"used are {_listed(used)}, there are {_listed(set(expressions))}",
        )
    return TopicTemplate(pieces, "", re2.compile(pattern), _backward(pieces, expressions), origin)


def _row_of(pattern: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """An expression as text and groups in turn, and what each group matches."""
    origin: list[str] = [""]
    expressions: dict[str, str] = {}
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "(":
            end = _end_of_group(pattern, at)
            number = str(len(expressions) + 1)
            expressions[number] = pattern[at + 1 : end]
            origin += [number, ""]
            at = end + 1
        elif character == "\\" and pattern[at + 1 : at + 2] in tuple(".-_"):
            origin[-1] += pattern[at + 1]
            at += 2
        elif character.isalnum() or character in "-_":
            origin[-1] += character
            at += 1
        else:
            raise _not_a_row(pattern)
        if at < len(pattern) and pattern[at] in "*+?{|":
            raise _not_a_row(pattern)
    return tuple(origin), expressions


def _end_of_group(pattern: str, start: int) -> int:
    """The end of the group that begins at `start`. The group must be a plain capturing one without others inside."""
    in_class = False
    at = start + 1
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "(" or (character == "?" and at == start + 1):
            break
        elif character == ")":
            return at
        at += 1
    raise _not_a_row(pattern)


def _not_a_row(pattern: str) -> InvalidRuleError:
    return InvalidRuleError(
        FIELD,
        "groups can only be used with an expression that is a row of text and groups, like 'eu-(.+)\\.(v\\d+)'; "
        f"{pattern!r} is not: use {{topic}}",
    )


def _backward(pieces: tuple[str, ...], expressions: dict[str, str]) -> Any:
    parts = [
        f"(?P<p{piece}>{expressions[piece]})" if index % 2 else re.escape(piece) for index, piece in enumerate(pieces)
    ]
    return re2.compile("".join(parts))


def _joined(pieces: tuple[str, ...], values: dict[str, str]) -> str:
    return "".join(values.get(piece, "") if index % 2 else piece for index, piece in enumerate(pieces))


def _listed(names: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names)) or "none"
