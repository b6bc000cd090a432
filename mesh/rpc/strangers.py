"""Refuses callers to whom no secret may go: those beyond this machine who have not proved who they are."""

from __future__ import annotations

from typing import Any, Final

from mesh.rpc.errors import denied
from mesh.rpc.principals import principal_of

THIS_MACHINE: Final = ("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix:")
"""The beginnings of the peers on the machine of the server, as gRPC names these."""


def refuse_strangers(context: Any) -> None:
    """Raises RpcError; without TLS everyone on the way could read what the server answers."""
    peer = str(context.peer())
    if principal_of(context) is None and not peer.startswith(THIS_MACHINE):
        raise denied(
            f"verifiers of users leave this machine over mutual TLS alone, and {peer} calls without TLS: set "
            "RPC_TLS_FOLDER at both"
        )
