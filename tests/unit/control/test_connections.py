"""Control's admin clients for upstream clusters."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.routing import UpstreamCluster
from services.control.upstream import connections
from services.control.upstream.connections import Connections, UnreachableError
from services.gateway.wire.apis import ApiKey
from tests.unit.gateway.scripted_broker import METADATA_ALONE, broker

GOOD = connections.connection_settings


def _never_begins_again(cluster: UpstreamCluster) -> dict[str, Any]:
    """As librdkafka's fault has it now and then (`mesh/lost_brokers.py`), but each time."""
    return {**GOOD(cluster), "metadata.recovery.strategy": "none"}


async def test_a_cluster_that_told_of_no_brokers_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "connection_settings", _never_begins_again)
    asking = Connections()
    try:
        async with broker({}) as waking:
            waking.versions = METADATA_ALONE
            cluster = UpstreamCluster("c1", (waking.address,), 1)
            assert [seen.port for seen in (await asking.describe(cluster)).brokers] == [waking.port]
            waking.tell_of_no_brokers()
            with pytest.raises(UnreachableError, match="no broker that can be used now"):
                await asking.describe(cluster)
            del waking.scripts[ApiKey.METADATA]
            assert [seen.port for seen in (await asking.describe(cluster)).brokers] == [waking.port]
    finally:
        asking.close()
