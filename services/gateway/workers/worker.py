"""One worker: `python -m services.gateway.workers.worker NUMBER DOOR LINE INBOX DOORS...`, descriptors of sockets.

Its settings come on standard input, as a pickle: secrets are in no argument, and all workers have what the supervisor
has checked. Only the supervisor starts a worker.
"""

import pickle
import socket
import sys

import structlog

from mesh.lifecycle import Lifecycle, run
from mesh.telemetry import configure_logging
from services.gateway.downstream.gateway import Gateway
from services.gateway.downstream.siblings import Siblings
from services.gateway.serving import serve, stop_bound_s
from services.gateway.settings import GatewaySettings
from services.gateway.workers.line import Line


def main() -> None:
    number, sockets = sys.argv[1], [_own(int(descriptor)) for descriptor in sys.argv[2:]]
    door, line, inbox, *doors = sockets
    settings: GatewaySettings = pickle.load(sys.stdin.buffer)
    configure_logging("gateway", level=settings.log_level)
    structlog.contextvars.bind_contextvars(worker=number)

    async def work(lifecycle: Lifecycle) -> None:
        gateway = Gateway(settings, lifecycle, door, Siblings(int(number), inbox, doors))

        def tally() -> tuple[int, int]:
            handed = gateway.handed
            return (0, 0) if handed is None else (handed.taken, len(gateway.connections) + handed.meeting)

        Line(line, lifecycle, tally, stop_bound_s(settings)).start()
        await serve(gateway, lifecycle)

    run(work, stop_timeout=stop_bound_s(settings))


def _own(descriptor: int) -> socket.socket:
    """A socket that was inherited, and that processes started here shall not inherit."""
    inherited = socket.socket(fileno=descriptor)
    inherited.set_inheritable(False)
    return inherited


if __name__ == "__main__":
    main()
