"""Why the home cluster keeps the router out, when its brokers do."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from mesh.cluster_access import ClusterAccess, reason_of
from mesh.connection_security import PasswordLogin
from mesh.settings import host_port

KNOCK_TIMEOUT = 3.0
"""Seconds until a broker has let us in, or has not."""
SAYS_NOTHING = (
    "the broker closes the connection; it may want another security.protocol, or a certificate that it trusts"
)
"""Brokers give no reason before a login, nor without one."""


async def why_kept_out(home: ClusterAccess) -> str:
    """Why no broker accepts the login, each with its reason; empty when a broker does. aiokafka's own errors don't say
    it.
    """
    reasons = await asyncio.gather(*(_knock(address, home) for address in home.bootstrap))
    return "" if "" in reasons else "; ".join(reasons)


async def _knock(address: str, home: ClusterAccess) -> str:
    try:
        async with asyncio.timeout(KNOCK_TIMEOUT):
            await _enter(address, home)
    except (KafkaConnectionError, ConnectionResetError, BrokenPipeError):
        return f"{address}: {SAYS_NOTHING}"
    except (KafkaError, OSError, ValueError, LookupError) as error:  # the last two: SCRAM by who can't prove itself
        return f"{address}: {_without_password(reason_of(error), home)}"
    return ""


async def _enter(address: str, home: ClusterAccess) -> None:
    """Connects, and sends a request that a broker answers only after the login."""
    host, port = host_port(address)
    connection: Any = await create_conn(host, port, request_timeout_ms=int(1000 * KNOCK_TIMEOUT), **home.for_aiokafka())
    try:
        await connection.send(MetadataRequest([]))
    finally:
        connection.close()


def _without_password(words: str, home: ClusterAccess) -> str:
    """A broker may repeat the password in its answer."""
    secret = home.login.password if isinstance(home.login, PasswordLogin) else ""
    return words.replace(secret, "(password)") if secret else words
