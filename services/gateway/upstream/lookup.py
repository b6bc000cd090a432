"""Connects to brokers by the names of their hosts; each cluster has threads of its own to look names up.

The resolver of the system blocks its thread, for half a minute if a DNS server does not answer. All clusters together
would soon fill the threads of the event loop with the names of one dead zone, and no broker could be connected to.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

LOOKUPS_AT_ONCE: Final = 4
"""Lookups of one cluster. More of them wait, no longer than the time for their connection."""

Addresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]
"""What `socket.getaddrinfo` returns."""


class Lookup:
    """The lookups of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS_AT_ONCE, f"look up {cluster}")

    async def connect(
        self, new: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None
    ) -> None:
        """Connect to the first address of the host that answers. Raises OSError; ssl.SSLError is one."""
        loop = asyncio.get_running_loop()
        failure = OSError(f"{host} has no address")
        for family, _, _, _, address in await self._addresses(host, port):
            try:
                # a number needs no lookup; uvloop must open the socket itself, or it may watch another one's descriptor
                await loop.create_connection(
                    new, _numeric(address), address[1], family=family, ssl=tls, server_hostname=host if tls else None
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    async def _addresses(self, host: str, port: int) -> Addresses:
        find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        if _is_address(host):
            return find()
        try:
            looking = asyncio.get_running_loop().run_in_executor(self._threads, find)
        except RuntimeError as error:
            raise OSError(f"{host} is not looked up any more: {error}") from None
        return await looking

    def end(self) -> None:
        """No more lookups. A thread that still waits for DNS ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _numeric(address: tuple[Any, ...]) -> str:
    """The address of a host without its port; an address of one link with its interface."""
    _, _, *of_version_6 = address
    scope = of_version_6[1] if of_version_6 else 0
    return f"{address[0]}%{scope}" if scope else str(address[0])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
