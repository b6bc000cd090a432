"""How a service listens by HTTP: a socket that is bound before anything else is made, and a server that serves it."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from mesh.settings import host_port


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: `mesh.lifecycle` has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound_socket(listen: str) -> socket.socket:
    """OSError, naming the address, when it is taken."""
    host, port = host_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror}") from None
    bound.set_inheritable(True)
    return bound
