"""Which clients a rule is about, as control writes it: so a rule about the same ones is found again."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from mesh.rpc import routing

_MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4 as IPv6 writes it."""


def client_match(
    principal: str = "",
    client_id: str = "",
    client_id_prefix: str = "",
    software_name: str = "",
    source_networks: Iterable[str] = (),
) -> routing.ClientMatch | None:
    """None when nothing is asked; The message of a ValueError names the wrong network."""
    networks = _together(source_networks)
    if not (principal or client_id or client_id_prefix or software_name or networks):
        return None
    return routing.ClientMatch(
        principal=principal,
        client_id=client_id,
        # one who is called so begins so; control says where no client can be called that
        client_id_prefix="" if client_id and client_id.startswith(client_id_prefix) else client_id_prefix,
        software_name=software_name,
        source_networks=networks,
    )


def network_error(text: str) -> str | None:
    """The error in a network, and the right form."""
    try:
        ip_network(text)
    except ValueError as error:
        return f"{error}; expected an address and how many bits of it count, like 10.1.0.0/16"
    return None


def _together(networks: Iterable[str]) -> list[str]:
    fours: list[IPv4Network] = []
    sixes: list[IPv6Network] = []
    for text in networks:
        network = ip_network(text)
        if isinstance(network, IPv4Network):
            fours.append(network)
        elif network.prefixlen >= _MAPPED.prefixlen and network.subnet_of(_MAPPED):
            address = int(network.network_address) - int(_MAPPED.network_address)
            fours.append(IPv4Network((address, network.prefixlen - _MAPPED.prefixlen)))
        else:
            sixes.append(network)
    return [str(each) for each in (*collapse_addresses(fours), *collapse_addresses(sixes))]
