"""Clients as rules see them: who one is, and which ones a rule is about.

A condition that says more holds for fewer clients. `ClientMatch.both` is what two of them say together, and one
*implies* another when the other adds nothing to it: so conditions can be compared without any client at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_address, ip_network

from mesh.routing.errors import InvalidRuleError

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

ANONYMOUS = "User:ANONYMOUS"
"""Principal of a client that did not authenticate."""
ADDRESSES_REMEMBERED = 4096
SAID = ("principal", "client_id", "client_id_prefix", "software_name", "source_networks")
"""The fields of a condition; the names are those of ClientMatch in routing.proto."""
MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4 as sockets for both families tell it."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A client. An empty field is unknown, and a condition about an unknown field does not hold."""

    principal: str = ANONYMOUS
    client_id: str = ""
    software_name: str = ""
    software_version: str = ""
    address: str = ""
    """IP address it connects from."""

    @property
    def ip(self) -> Address | None:
        return _ip(self.address)


@dataclass(frozen=True, slots=True)
class ClientMatch:
    """Which clients a rule is about: all that is said must hold. Equal ones say the same of clients."""

    principal: str = ""
    client_id: str = ""
    client_id_prefix: str = ""
    software_name: str = ""
    source_networks: tuple[str, ...] = ()
    """As "10.1.0.0/16": sorted, none inside another, IPv4 as such however it was written."""
    networks: tuple[Network, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not any(getattr(self, each) for each in SAID):
            raise InvalidRuleError(
                "match.client",
                "says nothing; give at least one of principal, client_id, client_id_prefix, software_name and "
                "source_networks, or leave client out: the rule is then about every client",
            )
        if self.client_id and self.client_id_prefix:
            if not self.client_id.startswith(self.client_id_prefix):
                raise InvalidRuleError(
                    "match.client.client_id_prefix",
                    f"no client is called {self.client_id!r} and begins with {self.client_id_prefix!r}; leave one out",
                )
            object.__setattr__(self, "client_id_prefix", "")
        networks = _together(map(_network, self.source_networks))
        object.__setattr__(self, "networks", networks)
        object.__setattr__(self, "source_networks", tuple(map(str, networks)))

    def holds_for(self, client: ClientIdentity) -> bool:
        return (
            self.principal in ("", client.principal)
            and self.client_id in ("", client.client_id)
            and client.client_id.startswith(self.client_id_prefix)
            and self.software_name in ("", client.software_name)
            and (not self.networks or self._has(client.ip))
        )

    def _has(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self.networks)

    def both(self, other: ClientMatch) -> ClientMatch | None:
        """The condition that holds where both hold; None if no client can meet both."""
        principal, client_id, prefix, software = (
            _one_of(self.principal, other.principal),
            _one_of(self.client_id, other.client_id),
            _longer(self.client_id_prefix, other.client_id_prefix),
            _one_of(self.software_name, other.software_name),
        )
        networks = _common(self.networks, other.networks)
        if principal is None or client_id is None or prefix is None or software is None or networks is None:
            return None
        if client_id and not client_id.startswith(prefix):
            return None
        return ClientMatch(principal, client_id, prefix, software, tuple(map(str, networks)))

    def implies(self, other: ClientMatch) -> bool:
        """Whether the other one holds for every client for whom this one does."""
        return (
            other.principal in ("", self.principal)
            and other.client_id in ("", self.client_id)
            and (self.client_id or self.client_id_prefix).startswith(other.client_id_prefix)
            and other.software_name in ("", self.software_name)
            and (not other.networks or self._is_within(other))
        )

    def _is_within(self, other: ClientMatch) -> bool:
        return bool(self.networks) and _common(self.networks, other.networks) == self.networks

    def __str__(self) -> str:
        said = (
            ("principal {}", self.principal),
            ("client id {}", self.client_id),
            ("client id prefix {}", self.client_id_prefix),
            ("software {}", self.software_name),
            ("from {}", " or ".join(self.source_networks)),
        )
        return ", ".join(text.format(value) for text, value in said if value)


def implied(one: ClientMatch | None, other: ClientMatch | None) -> bool:
    """As `implies`; None stands for every client."""
    return other is None or (one is not None and one.implies(other))


def _network(text: str) -> Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise InvalidRuleError(
            "match.client.source_networks",
            f"{text!r} is no network ({error}); expected an address and how many bits of it count, like '10.1.0.0/16'",
        ) from None
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED.prefixlen and network.subnet_of(MAPPED):
        mapped = network.network_address.ipv4_mapped
        return IPv4Network((int(mapped or 0), network.prefixlen - MAPPED.prefixlen))
    return network


def _together(networks: Iterable[Network]) -> tuple[Network, ...]:
    """The same addresses by the fewest networks, IPv4 first."""
    given = list(networks)
    fours = [each for each in given if isinstance(each, IPv4Network)]
    sixes = [each for each in given if isinstance(each, IPv6Network)]
    return (*collapse_addresses(fours), *collapse_addresses(sixes))


def _common(ours: tuple[Network, ...], theirs: tuple[Network, ...]) -> tuple[Network, ...] | None:
    """Addresses in both; no networks stand for every address."""
    if not ours or not theirs:
        return ours or theirs
    found = [
        one if one.prefixlen > other.prefixlen else other
        for one in ours
        for other in theirs
        if one.version == other.version and one.overlaps(other)
    ]
    return _together(found) if found else None


def _one_of(one: str, other: str) -> str | None:
    return None if one and other and one != other else one or other


def _longer(one: str, other: str) -> str | None:
    short, long = sorted((one, other), key=len)
    return long if long.startswith(short) else None


@lru_cache(maxsize=ADDRESSES_REMEMBERED)
def _ip(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])  # a link-local one names its interface, too
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class Conditions:
    """Finds among many conditions those that hold for a client, without trying each: every condition is found by the
    first thing it says that few clients share."""

    __slots__ = ("_by_client_id", "_by_networks", "_by_prefix", "_by_principal", "_by_software", "_lengths", "all")

    def __init__(self, conditions: Iterable[ClientMatch]) -> None:
        self.all: tuple[ClientMatch, ...] = tuple(dict.fromkeys(conditions))
        self._by_client_id: dict[str, list[ClientMatch]] = {}
        self._by_prefix: dict[str, list[ClientMatch]] = {}
        self._by_principal: dict[str, list[ClientMatch]] = {}
        self._by_software: dict[str, list[ClientMatch]] = {}
        self._by_networks: dict[Network, list[ClientMatch]] = {}
        for each in self.all:
            if each.client_id:
                self._by_client_id.setdefault(each.client_id, []).append(each)
            elif each.client_id_prefix:
                self._by_prefix.setdefault(each.client_id_prefix, []).append(each)
            elif each.networks:
                for network in each.networks:
                    self._by_networks.setdefault(network, []).append(each)
            elif each.principal not in ("", ANONYMOUS):
                self._by_principal.setdefault(each.principal, []).append(each)
            else:
                self._by_software.setdefault(each.software_name, []).append(each)
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix})

    def holding_for(self, client: ClientIdentity) -> frozenset[ClientMatch]:
        return frozenset(each for each in self._candidates(client) if each.holds_for(client))

    def _candidates(self, client: ClientIdentity) -> Iterable[ClientMatch]:
        yield from self._by_client_id.get(client.client_id, ())
        for length in self._lengths:
            yield from self._by_prefix.get(client.client_id[:length], ())
        yield from self._by_principal.get(client.principal, ())
        for software in ("", client.software_name):
            yield from self._by_software.get(software, ())
        address = client.ip
        if address is not None and self._by_networks:
            network = ip_network(address)
            while True:
                yield from self._by_networks.get(network, ())
                if network.prefixlen == 0:
                    break
                network = network.supernet()

    def implied_by(self, clients: ClientMatch) -> frozenset[ClientMatch]:
        """Those that hold for every client of whom this is known."""
        return frozenset(each for each in self.all if clients.implies(each))
