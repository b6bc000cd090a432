"""Secrets go to callers with a certificate, and to callers on this machine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mesh.rpc.errors import RpcError
from mesh.rpc.strangers import refuse_strangers


class Context:
    """A call, as a server sees it."""

    def __init__(self, peer: str, proofs: Mapping[str, list[bytes]]) -> None:
        self._peer, self._proofs = peer, proofs

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return self._proofs


CERTIFIED = {
    "transport_security_type": [b"ssl"],
    "x509_subject_alternative_name": [b"spiffe://mesh/router/r1"],
}


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:5000", "ipv6:[::1]:5000", "ipv6:%5B::1%5D:5000", "unix:"])
def test_a_caller_on_this_machine_needs_no_certificate(peer: str) -> None:
    refuse_strangers(Context(peer, {}))


@pytest.mark.parametrize(
    "peer", ["ipv4:10.0.0.7:5000", "ipv4:12.7.0.1:5000", "ipv6:%5Bfe80::1%5D:5000", "ipv6:[::12]:1"]
)
def test_a_caller_beyond_this_machine_needs_one(peer: str) -> None:
    refuse_strangers(Context(peer, CERTIFIED))
    with pytest.raises(RpcError, match="over mutual TLS alone"):
        refuse_strangers(Context(peer, {}))
