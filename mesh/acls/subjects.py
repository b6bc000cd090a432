"""The client about whom is decided."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address


@dataclass(frozen=True, slots=True)
class Subject:
    """A client: all that it is, and its address."""

    principals: tuple[str, ...]
    """The user comes first; groups and other kinds follow. `User:*` is no principal of a client."""
    host: str
    """The IP address as in ACLs (`plain_host`)."""

    def __str__(self) -> str:
        return self.principals[0]


def plain_host(address: str) -> str:
    """An address as ACLs name it: the shortest form, IPv4 where IPv6 only wraps it, without a zone.

    Any text that is no address stays as it is, and meets no ACL but those for every host.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return str(parsed)
