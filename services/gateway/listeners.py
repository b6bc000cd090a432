"""The listeners of the gateway and their advertised addresses: read from settings, checked, without I/O.

A listener says how its clients prove who they are: `SECURITY://HOST:PORT`, with Kafka's names of the four protocols.
Without one of these it is PLAINTEXT; `tls://` is SSL. `NAME=` before this names the listener, so that control can
decide about it; otherwise its name is `listener-` and its number.

A listener has one address for everybody. Besides, it may have a port for each virtual node (`NODE_PORTS`). Over TLS it
may instead have a host for each (`{node}` in its advertised host; the client names the host in its hello, SNI).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_settings import NoDecode

from mesh.listeners import MECHANISMS, USUAL_MECHANISMS, Certificates, NameRule, Security
from mesh.routing import FIRST_CLUSTER_NODE_ID
from mesh.settings import Split, host_port
from services.gateway.requests.nodes import NODE_PLACEHOLDER, Advertised, NodePorts

TLS_SCHEME: Final = "tls://"
NONE: Final = "-"
"""In a list for each listener: this one has none."""
NO_PORTS: Final = NONE
MAX_NODE_PORTS: Final = 1000
HIGHEST_PORT: Final = 65_535
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
_NAMED = re.compile(r"(\d{1,5})=(\d{1,5})")
LISTENER_NAME: Final = re.compile(r"[a-z0-9-]{1,63}")


@dataclass(frozen=True, slots=True)
class Listener:
    """One of `LISTEN`, or one that control has decided."""

    host: str
    port: int
    security: Security
    advertised: Advertised
    mechanisms: tuple[str, ...] = ()
    """How clients may log in."""
    certificates: Certificates = Certificates.NONE
    name: str = ""
    rules: tuple[NameRule, ...] = (NameRule(),)
    """From names in certificates to principals."""

    @property
    def tls(self) -> bool:
        return self.security.tls

    @property
    def asks_who(self) -> bool:
        """Whether each client proves who it is."""
        return self.security.sasl or self.certificates is Certificates.REQUIRED

    @property
    def places(self) -> Iterator[tuple[int, int | None]]:
        """Ports to listen on, each with the node that it belongs to; None: to all of them."""
        yield self.port, None
        yield from self.advertised.node_ports.by_port.items()

    @property
    def places_there(self) -> tuple[str, tuple[tuple[int, int | None], ...]]:
        """The addresses on which it listens."""
        return self.host, tuple(self.places)

    def asking(self, certificates: Certificates) -> "Listener":
        return replace(self, certificates=certificates)

    def __str__(self) -> str:
        scheme = {Security.PLAINTEXT: "", Security.SSL: TLS_SCHEME}.get(self.security, f"{self.security.value}://")
        return f"{scheme}{self.host}:{self.port}"


def listen_address(value: str) -> str:
    """`host:port` or `security://host:port`, maybe with `name=` before it, checked."""
    name, separator, _ = value.rpartition("=")
    if separator and not LISTENER_NAME.fullmatch(name):
        raise ValueError(f"{value!r}: {name[:63]!r} is no name of a listener: 1 to 63 characters of [a-z0-9-]")
    _security(value)
    host_port(_place(value))
    return value


def _place(value: str) -> str:
    return value.rpartition("=")[2].rpartition("://")[2]


def _security(value: str) -> Security:
    scheme, separator, _ = value.rpartition("=")[2].rpartition("://")
    if not separator:
        return Security.PLAINTEXT
    try:
        return Security.SSL if f"{scheme}://" == TLS_SCHEME else Security(scheme.upper())
    except ValueError:
        known = ", ".join(each.value for each in Security)
        raise ValueError(f"{value!r}: {scheme!r} is no security of a listener; expected one of {known}") from None


ListenList = Annotated[tuple[Annotated[str, AfterValidator(listen_address)], ...], Split, NoDecode]
"""What `LISTEN` may hold, written as one comma-separated string or as a list."""


def listeners(
    listen: Sequence[str],
    advertised: Sequence[str],
    node_ports: Sequence[str],
    mechanisms: Sequence[str] = (),
    certificates: Sequence[str] = (),
    rules: tuple[NameRule, ...] = (NameRule(),),
) -> list[Listener]:
    """ValueError says what is wrong with which of them."""
    names = [each.rpartition("=")[0] or f"listener-{number}" for number, each in enumerate(listen, 1)]
    if len(set(names)) < len(names):
        raise ValueError(f"listen names two listeners alike: {', '.join(names)}")
    for name, told in (("advertised", advertised), ("node_ports", node_ports)):
        if told and len(told) != len(listen):
            raise ValueError(f"{name} names {len(told)} addresses for {len(listen)} of listen: give as many, or none")
    found = [
        _listener(here, there or _place(here), ports or NO_PORTS)
        for here, there, ports in zip_longest(listen, advertised, node_ports)
    ]
    _check_ports(found)
    by_login = _for_each("sasl_mechanisms", mechanisms, len(listen))
    by_certificate = _for_each("tls_client_auth", certificates, len(listen))
    return [
        replace(
            each, name=name, mechanisms=_mechanisms(each, named), certificates=_certificates(each, asked), rules=rules
        )
        for each, name, named, asked in zip(found, names, by_login, by_certificate, strict=True)
    ]


def _for_each(name: str, told: Sequence[str], count: int) -> Sequence[str | None]:
    """The word of a setting for each listener: a single word is for all, without a word each gets None."""
    if told and len(told) not in (1, count):
        raise ValueError(f"{name} has {len(told)} parts for {count} of listen: give as many, or one for all, or none")
    if len(told) < 2:
        return [*told, None][:1] * count
    return list(told)


def _mechanisms(listener: Listener, named: str | None) -> tuple[str, ...]:
    if not listener.security.sasl:
        return ()
    words = (USUAL_MECHANISMS if named is None else named).upper().split()
    served = [each.value for each in MECHANISMS]
    if not words or len(set(words)) < len(words) or not set(words) <= set(served):
        raise ValueError(f"sasl_mechanisms of {listener}: {named!r}; expected some of {' '.join(served)}, each once")
    return tuple(words)


def _certificates(listener: Listener, asked: str | None) -> Certificates:
    if not listener.tls or asked is None:
        return Certificates.NONE
    try:
        return Certificates(Certificates.NONE.value if asked == NONE else asked.lower())
    except ValueError:
        known = ", ".join(each.value for each in Certificates)
        raise ValueError(f"tls_client_auth of {listener}: {asked!r}; expected one of {known}") from None


def _listener(here: str, there: str, ports: str) -> Listener:
    host, port = host_port(_place(here))
    security = _security(here)
    return Listener(host, port, security, advertised_of(there, security, _node_ports(ports)))


def advertised_of(there: str, security: Security, ports: NodePorts) -> Advertised:
    """The advertised address of a listener of this security; ValueError if clients could not use it."""
    host, port = host_port(there)
    if NODE_PLACEHOLDER in host and not security.tls:
        way_out = f"listen there with {TLS_SCHEME}, or give each node a port (node_ports)"
        raise ValueError(f"advertised {there!r} has a host for each node, which only TLS can tell apart: {way_out}")
    if re.search(r"[{}]", host.replace(NODE_PLACEHOLDER, "", 1)):
        raise ValueError(f"advertised {there!r}: {NODE_PLACEHOLDER} may stand there once, and nothing else in braces")
    if NODE_PLACEHOLDER in host and ports != NodePorts():
        raise ValueError(f"advertised {there!r} has a host for each node, and node_ports a port: one of them is enough")
    return Advertised(host, port, ports)


def _node_ports(text: str) -> NodePorts:
    if text == NO_PORTS:
        return NodePorts()
    if in_range := _RANGE.fullmatch(text):
        first, last = int(in_range[1]), int(in_range[2])
        if not 0 < first <= last <= HIGHEST_PORT or last - first >= MAX_NODE_PORTS:
            raise ValueError(f"node_ports {text!r}: expected at most {MAX_NODE_PORTS} ports, 1 to {HIGHEST_PORT}")
        return NodePorts(first, last)
    pairs = [_NAMED.fullmatch(word) for word in text.split()]
    named = tuple((int(pair[1]), int(pair[2])) for pair in pairs if pair is not None)
    if not named or None in pairs:
        raise ValueError(f"node_ports {text!r}: expected FIRST-LAST, or NODE=PORT NODE=PORT, or {NO_PORTS} for none")
    if any(node < FIRST_CLUSTER_NODE_ID or not 0 < port <= HIGHEST_PORT for node, port in named):
        wanted = f"nodes are {FIRST_CLUSTER_NODE_ID} and the cluster's ordinal, ports are 1 to {HIGHEST_PORT}"
        raise ValueError(f"node_ports {text!r}: {wanted}")
    if len({node for node, _ in named}) < len(named) or len({port for _, port in named}) < len(named):
        raise ValueError(f"node_ports {text!r} names a node or a port twice")
    return NodePorts(named=named)


def _check_ports(found: Sequence[Listener]) -> None:
    taken: set[tuple[str, int]] = set()
    for listener in found:
        for port, _ in listener.places:
            if (listener.host, port) in taken and port:
                raise ValueError(f"listen and node_ports name port {port} of {listener.host} twice")
            taken.add((listener.host, port))
