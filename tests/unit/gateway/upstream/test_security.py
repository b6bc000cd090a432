"""A table with a cluster that can't be connected to as securely as it asks for is refused, with the property."""

from __future__ import annotations

import sys

import pytest

from mesh.routing import RoutingTable, UpstreamCluster
from services.gateway.upstream import security
from services.gateway.upstream.security import UnservedClusterError


def table(**properties: str) -> RoutingTable:
    said = {name.replace("_", "."): value for name, value in properties.items()}
    return RoutingTable(1, [UpstreamCluster("c1", ("broker:9092",), 1, producer_config=said)])


def test_what_is_served_passes() -> None:
    security.check(table(security_protocol="ssl"))


def test_what_is_not_served_is_named_with_its_cluster() -> None:
    with pytest.raises(UnservedClusterError, match=r"cluster 'c1': ssl\.crl\.location: is not served"):
        security.check(table(security_protocol="ssl", ssl_crl_location="/crl"))


def test_kerberos_without_its_extra_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)  # as if it were not installed
    with pytest.raises(UnservedClusterError, match=r"sasl\.mechanisms: GSSAPI needs .*kafka-mesh\[gateway,gssapi\]"):
        security.check(table(security_protocol="sasl_plaintext", sasl_mechanisms="GSSAPI"))
