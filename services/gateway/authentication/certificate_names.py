"""Principals from clients' certificates, by the rules of Kafka's `ssl.principal.mapping.rules`.

The first rule whose pattern matches the whole distinguished name makes the principal's name:
`RULE:PATTERN/REPLACEMENT/` with `L` or `U` behind it for small or capital letters, or `DEFAULT` for the name as it is.
Patterns are Java's, of which Python's have all that names need; `$1` stands for the first group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.gateway.authentication.principal import CERTIFICATE, Principal

DEFAULT: Final = "DEFAULT"
_PART: Final = r"(?:\\.|[^\\/])*"
_RULES: Final = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<to>{_PART})/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\$(\d)|\\(.)")
MAX_NAME: Final = 1024
"""Characters of a distinguished name; patterns are tried on no longer name."""
_KEYWORDS: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""The keywords of RFC 2253. Any other attribute keeps OpenSSL's name for it."""


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


def principal_of(subject: str, rules: Iterable[NameRule]) -> Principal | None:
    """The principal of a certificate's subject; None if no rule matches it."""
    if not subject or len(subject) > MAX_NAME:
        return None
    name = next((name for rule in rules if (name := rule.name(subject)) is not None), None)
    return Principal(name, CERTIFICATE) if name else None


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate (as Python's ssl shows it) by RFC 2253, such as "CN=shop,O=Example"."""
    relative = [
        "+".join(f"{_KEYWORDS.get(name, name)}={_escaped(value)}" for name, value in parts)
        for parts in certificate.get("subject", ())
    ]
    return ",".join(reversed(relative))


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and not text.endswith("\\ ") else text
