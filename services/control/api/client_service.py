"""ClientService: the Kafka clients of the mesh, as gateways report them."""

from __future__ import annotations

from typing import Any

from mesh.rpc import access, clients, clients_grpc
from mesh.rpc.roles import ROLES
from services.control.api import pages
from services.control.api.access_gate import AccessGate
from services.control.api.calls import present_principal
from services.control.decisions.members.members import Members
from services.control.domain.members.clients import listed
from services.control.store.journal import Journal

READS_ADDRESSES = "the addresses of clients"


class ClientService(clients_grpc.ClientServiceServicer):
    """See ClientService in clients.proto."""

    def __init__(self, journal: Journal, members: Members, gate: AccessGate, addresses_for: str) -> None:
        """`addresses_for`: the lowest role that may see addresses, or "nobody"."""
        self._journal = journal
        self._members = members
        self._gate = gate
        self._addresses_for = access.Access(
            roles=[ROLES[addresses_for]] if addresses_for in ROLES else [], effect=access.EFFECT_READS
        )

    async def ListClients(self, request: clients.ListClientsRequest, context: Any) -> clients.ListClientsResponse:
        self._journal.require_loaded()
        found = listed(self._members.client_reports(), request)
        listing, keys = pages.listing_of("clients", request), [key for key, _ in found]
        page, token = pages.cut(listing, found, keys, request.page_size, request.page_token)
        response = clients.ListClientsResponse(next_page_token=token, addresses_hidden=not self._shows_addresses())
        for _, client in page:
            shown = response.clients.add()
            shown.CopyFrom(client)
            if response.addresses_hidden:
                shown.ClearField("address")
        for each in self._members.unlisted():
            if request.gateway in ("", each.gateway):
                kinds = max(0, each.kinds - each.listed)
                response.left_out.add(gateway=each.gateway, kinds=kinds, connections=each.connections)
        return response

    def _shows_addresses(self) -> bool:
        """Whether the present caller may see addresses. A caller without a proved name has all rights."""
        principal = present_principal()
        if principal is None:
            return bool(self._addresses_for.roles)
        return self._gate.allows(principal, READS_ADDRESSES, self._addresses_for)
