"""Rules from the names in clients' certificates to principals: Kafka's `ssl.principal.mapping.rules`. No I/O.

The first rule whose pattern matches the whole distinguished name makes the principal's name:
`RULE:PATTERN/REPLACEMENT/` with `L` or `U` behind it for small or capital letters, or `DEFAULT` for the name as it is.
Patterns are Java's, of which Python's have all that names need; `$1` stands for the first group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DEFAULT: Final = "DEFAULT"
_PART: Final = r"(?:\\.|[^\\/])*"
_RULES: Final = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<to>{_PART})/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\$(\d)|\\(.)")


@dataclass(frozen=True, slots=True)
class NameRule:
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def name(self, distinguished: str) -> str | None:
        """The principal's name; None if the rule does not match."""
        if self.pattern is None:
            return distinguished
        match = self.pattern.fullmatch(distinguished)
        if match is None:
            return None
        name = _REFERENCE.sub(lambda found: match[int(found[1])] or "" if found[1] else found[2], self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def name_rules(text: str) -> tuple[NameRule, ...]:
    """The rules of a text as in Kafka's setting. ValueError says what is wrong."""
    rules: list[NameRule] = []
    at = 0
    while at < len(text):
        found = _RULES.match(text, at)
        if found is None:
            raise ValueError(
                f"at {text[at : at + 40]!r}: expected DEFAULT, or RULE:PATTERN/REPLACEMENT/ with L or U or nothing"
            )
        rules.append(NameRule() if found["default"] else _rule(found["pattern"], found["to"], found["case"]))
        at = found.end()
    return tuple(rules) or (NameRule(),)


def _rule(pattern: str, replacement: str, case: str) -> NameRule:
    try:
        compiled = re.compile(pattern.replace(r"\/", "/"))
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern: {error}") from None
    for reference in _REFERENCE.finditer(replacement):
        if reference[1] and int(reference[1]) > compiled.groups:
            raise ValueError(f"{replacement!r} names group {reference[1]}; {pattern!r} has {compiled.groups}")
    return NameRule(compiled, replacement, case)
