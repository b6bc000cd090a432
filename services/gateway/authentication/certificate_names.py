"""Principals from clients' certificates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mesh.listeners.name_rules import NameRule
from services.gateway.authentication.principal import CERTIFICATE, Principal

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
