"""One worker: `python -m services.gateway.workers.worker NUMBER DOOR LINE INBOX DOORS...`, descriptors of sockets.

Its settings come on standard input, as a pickle: secrets are in no argument, and all workers have what the supervisor
has checked. Only the supervisor starts a worker.
"""

# ruff: noqa: E402  # the first import keeps libraries out that the others would load
from mesh.lean import start_lean

start_lean()

import pickle
import socket
import sys
from collections.abc import Mapping

import structlog

from mesh.lifecycle import Lifecycle, run
from mesh.telemetry import configure_logging
from services.gateway.downstream.gateway import Gateway
from services.gateway.downstream.siblings import Siblings
from services.gateway.serving import serve, stop_bound_s
from services.gateway.settings import GatewaySettings
from services.gateway.workers.line import Line
from services.gateway.workers.words import Doors


def main() -> None:
    number, sockets = sys.argv[1], [_own(int(descriptor)) for descriptor in sys.argv[2:]]
    door, line, inbox, *doors = sockets
    settings: GatewaySettings = pickle.load(sys.stdin.buffer)
    configure_logging("gateway", level=settings.log_level)
    structlog.contextvars.bind_contextvars(worker=number)

    async def work(lifecycle: Lifecycle) -> None:
        gateway = Gateway(settings, lifecycle, door, Siblings(int(number), inbox, doors))

        def tally() -> tuple[int, int, int, Doors]:
            handed, listeners = gateway.handed, gateway.mesh.listeners
            if handed is None or listeners is None:
                return 0, 0, 0, ()
            revision, wanted = listeners.by_revision
            doors = tuple((name, each.host, each.port) for name, each in wanted.listeners.items())
            return handed.taken, len(gateway.connections) + handed.meeting, revision, doors

        def faulted(faults: Mapping[str, str]) -> None:
            if gateway.handed is not None:
                gateway.handed.faults = faults

        Line(line, lifecycle, tally, faulted, stop_bound_s(settings)).start()
        await serve(gateway, lifecycle)

    run(work, stop_timeout=stop_bound_s(settings))


def _own(descriptor: int) -> socket.socket:
    """A socket that was inherited, and that processes started here shall not inherit."""
    inherited = socket.socket(fileno=descriptor)
    inherited.set_inheritable(False)
    return inherited


if __name__ == "__main__":
    main()
