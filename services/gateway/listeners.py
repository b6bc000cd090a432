"""The listeners of the gateway and their advertised addresses: read from settings, checked, without I/O.

A listener has one address for everybody. Besides, it may have a port for each virtual node (`NODE_PORTS`). Over TLS it
may instead have a host for each (`{node}` in its advertised host; the client names the host in its hello, SNI).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_settings import NoDecode

from mesh.routing import FIRST_CLUSTER_NODE_ID
from mesh.settings import Split, host_port
from services.gateway.requests.nodes import NODE_PLACEHOLDER, Advertised, NodePorts

TLS_SCHEME: Final = "tls://"
NO_PORTS: Final = "-"
MAX_NODE_PORTS: Final = 1000
HIGHEST_PORT: Final = 65_535
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
_NAMED = re.compile(r"(\d{1,5})=(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    """One of `LISTEN`."""

    host: str
    port: int
    tls: bool
    advertised: Advertised

    @property
    def places(self) -> Iterator[tuple[int, int | None]]:
        """Ports to listen on, each with the node that it belongs to; None: to all of them."""
        yield self.port, None
        yield from self.advertised.node_ports.by_port.items()

    def __str__(self) -> str:
        return f"{TLS_SCHEME if self.tls else ''}{self.host}:{self.port}"


def listen_address(value: str) -> str:
    """`host:port` or `tls://host:port`, checked."""
    host_port(value.removeprefix(TLS_SCHEME))
    return value


ListenList = Annotated[tuple[Annotated[str, AfterValidator(listen_address)], ...], Split, NoDecode]
"""What `LISTEN` may hold, written as one comma-separated string or as a list."""


def listeners(listen: Sequence[str], advertised: Sequence[str], node_ports: Sequence[str]) -> list[Listener]:
    """ValueError says what is wrong with which of them."""
    for name, told in (("advertised", advertised), ("node_ports", node_ports)):
        if told and len(told) != len(listen):
            raise ValueError(f"{name} names {len(told)} addresses for {len(listen)} of listen: give as many, or none")
    found = [
        _listener(here, there or here.removeprefix(TLS_SCHEME), ports or NO_PORTS)
        for here, there, ports in zip_longest(listen, advertised, node_ports)
    ]
    _check_ports(found)
    return found


def _listener(here: str, there: str, ports: str) -> Listener:
    host, port = host_port(here.removeprefix(TLS_SCHEME))
    is_tls = here.startswith(TLS_SCHEME)
    told_host, told_port = host_port(there)
    if NODE_PLACEHOLDER in told_host and not is_tls:
        way_out = f"listen there with {TLS_SCHEME}, or give each node a port (node_ports)"
        raise ValueError(f"advertised {there!r} has a host for each node, which only TLS can tell apart: {way_out}")
    if re.search(r"[{}]", told_host.replace(NODE_PLACEHOLDER, "", 1)):
        raise ValueError(f"advertised {there!r}: {NODE_PLACEHOLDER} may stand there once, and nothing else in braces")
    if NODE_PLACEHOLDER in told_host and ports != NO_PORTS:
        raise ValueError(f"advertised {there!r} has a host for each node, and node_ports a port: one of them is enough")
    return Listener(host, port, is_tls, Advertised(told_host, told_port, _node_ports(ports)))


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
