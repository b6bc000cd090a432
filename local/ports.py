"""The free TCP ports of loopback, and the process that holds a busy port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

import psutil

from local.services import HOST


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT does not count
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def holder(port: int) -> str:
    """The process that listens on `port`, as far as this user may see."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # macOS shows other processes' sockets to root only
        return "another process"
    for connection in connections:
        if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
            return _describe(connection.pid)
    return "another process"


def _describe(pid: int | None) -> str:
    if pid is None:
        return "another user's process"
    try:
        process = psutil.Process(pid)
        return f"{process.name()} (pid {pid}: {' '.join(process.cmdline())[:80]})"
    except psutil.Error:
        return f"pid {pid}"


def taken(ports: Mapping[str, int]) -> list[str]:
    """One sentence for each port that cannot be had; `ports` maps what it is for to its number."""
    return [
        f"port {port} ({purpose}) is held by {holder(port)}" for purpose, port in ports.items() if not is_free(port)
    ]
