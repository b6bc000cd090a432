"""The clients that gateways report: as rules see them, and as operators look for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mesh.routing import ANONYMOUS, ClientIdentity
from mesh.rpc import clients, discovery
from services.control.domain.errors import InvalidField
from services.control.domain.members.usage import ClientUse

RELEASE = re.compile(r"\d{1,4}(\.\d{1,4}){1,2}")
"""A release of Kafka: 4.0, 4.1.1."""


def use_of(gateway: str, client: discovery.ConnectedClient) -> ClientUse:
    """As rules see a client."""
    software_name, _, software_version = client.software.partition("/")
    identity = ClientIdentity(
        client.principal or ANONYMOUS, client.client_id, software_name, software_version, client.host
    )
    used = (frozenset(names) for names in (client.topics, client.groups, client.transactional_ids))
    return ClientUse(gateway, identity, client.connections, *used)


def listed(
    reports: Mapping[str, discovery.ClientReport], request: clients.ListClientsRequest
) -> list[tuple[str, clients.Client]]:
    """The clients that a request asks for, each with its key, in the order of the keys."""
    release = release_of(request.removed_by) if request.removed_by else None
    found = [
        (_key(gateway, each), _shown(gateway, each))
        for gateway, report in reports.items()
        if request.gateway in ("", gateway)
        for each in report.clients
        if _is_asked_for(each, request, release)
    ]
    return sorted(found, key=lambda each: each[0])


def release_of(text: str) -> tuple[int, ...]:
    """InvalidField for a text that names no release of Kafka."""
    if not RELEASE.fullmatch(text):
        raise InvalidField("removed_by", f"{text!r} is no release of Kafka; write it as 4.0 or 4.1.1")
    return tuple(map(int, text.split(".")))


def _is_asked_for(
    client: discovery.ConnectedClient, request: clients.ListClientsRequest, release: tuple[int, ...] | None
) -> bool:
    return (
        request.principal in ("", client.principal)
        and request.client_id in ("", client.client_id)
        and (not request.topic or request.topic in client.topics)
        and (not request.group or request.group in client.groups)
        and (not request.with_errors or any(api.errors for api in client.apis))
        and (release is None or any(_is_gone(api, release) for api in client.apis))
    )


def _is_gone(api: clients.ClientApi, release: tuple[int, ...]) -> bool:
    """Whether the release lacks the lowest version that the client uses."""
    return bool(api.removed_in) and release_of(api.removed_in) <= release


def _key(gateway: str, client: discovery.ConnectedClient) -> str:
    return "\0".join((gateway, client.client_id, client.principal, client.software, client.host, client.listener))


def _shown(gateway: str, client: discovery.ConnectedClient) -> clients.Client:
    return clients.Client(
        gateway=gateway,
        principal=client.principal,
        client_id=client.client_id,
        software=client.software,
        address=client.host,
        listener=client.listener,
        connections=client.connections,
        since_time=client.since_time if client.HasField("since_time") else None,
        last_time=client.last_time if client.HasField("last_time") else None,
        produces_to=_at(client.topics, client.produced),
        consumes_from=_at(client.topics, client.consumed),
        groups=client.groups,
        transactional_ids=client.transactional_ids,
        rates=client.rates,
        apis=client.apis,
    )


def _at(names: Iterable[str], places: Iterable[int]) -> Iterator[str]:
    """The names at these places; a place without a name counts as none."""
    known = dict(enumerate(names))
    return (known[place] for place in places if place in known)
