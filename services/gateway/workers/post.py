"""One worker, seen from the supervisor: its process, its door and its line, until the process has ended."""

import asyncio
import json
import os
import pickle
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from services.gateway.settings import GatewaySettings
from services.gateway.workers.balance import Load
from services.gateway.workers.words import HEAR_FAULTS, TELL_METRICS, Word

PROGRAM = "services.gateway.workers.worker"
MOST_HEARD = 65_536

Hear = Callable[[Word], None]


class Post:
    """One of the workers. `run` starts a process and waits for its end; `run` may be called again then."""

    def __init__(
        self, number: int, settings: GatewaySettings, inbox: socket.socket, doors: Sequence[socket.socket]
    ) -> None:
        """The worker gets links of other workers by `inbox`; `doors` lead to all inboxes. Both outlive its process."""
        self.number = number
        self._inboxes = [inbox, *doors]
        self.load = Load(number)
        self.door: socket.socket | None = None
        self._line: socket.socket | None = None
        self._settings = settings.model_copy(update={"name": f"{settings.name}-{number}", "workers": 1})
        self._process: Process | None = None
        self._told: Mapping[str, str] = {}
        """The faults of listeners that the process has heard of."""
        self._worked: tuple[float, float] | None = None
        """The time of the last measurement, and the CPU seconds that the process had used by then."""

    async def run(self, hear: Hear) -> str:
        """Run one process; returns how it has ended. OSError: no process can be started."""
        door, its_door = socket.socketpair()
        line, its_line = socket.socketpair()
        door.setblocking(False)
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            with its_door, its_line:
                descriptors = [each.fileno() for each in (its_door, its_line, *self._inboxes)]
                process = await _started(self.number, descriptors)
            self.load, self._told = Load(self.number), {}
            self.door, self._line, self._process, self._worked = door, line, process, None
            loop.add_reader(line.fileno(), _Hearing(line, hear).take)
            await _told(process, self._settings)
            return _how(await process.wait())
        finally:
            self.door = self._line = self._process = None
            loop.remove_reader(line.fileno())
            door.close()
            line.close()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def order(self, order: bytes) -> None:
        """Send an order to the worker. If the worker has no process, the order is dropped."""
        with suppress(OSError):
            if self._line is not None:
                self._line.send(order)

    def tell_faults(self, faults: Mapping[str, str]) -> None:
        """Tell the worker which listeners are not open. If the worker has no process, nothing happens."""
        if self._line is None or self._told == faults:
            return
        ours, theirs = socket.socketpair()
        with ours, theirs, suppress(OSError):
            ours.sendall(json.dumps(faults).encode())
            socket.send_fds(self._line, [HEAR_FAULTS], [theirs.fileno()])
            self._told = dict(faults)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            if self._process is not None:
                self._process.kill()

    def ask_metrics(self) -> socket.socket | None:
        """The socket on which the answer comes; None if none will come. May be called from any thread."""
        line = self._line
        if line is None:
            return None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(line, [TELL_METRICS], [theirs.fileno()])
            except OSError:
                ours.close()
                return None
        return ours

    def look_how_busy(self) -> None:
        """Measure the load since the last measurement."""
        process = self._process
        if process is None:
            return
        now, worked = time.monotonic(), _seconds_of_a_core(process.pid)
        if self._worked is not None and now > self._worked[0]:
            self.load.busy = (worked - self._worked[1]) / (now - self._worked[0])
        self._worked = now, worked


class _Hearing:
    """Words of one process, as they come."""

    def __init__(self, line: socket.socket, hear: Hear) -> None:
        self._line = line
        self._hear = hear
        self._rest = b""

    def take(self) -> None:
        try:
            heard = self._line.recv(MOST_HEARD)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:  # the worker ends; `run`, which waits for the process, will see it
            asyncio.get_running_loop().remove_reader(self._line.fileno())
        *lines, self._rest = (self._rest + heard).split(b"\n")
        for line in lines:
            self._hear(Word.read(line))


async def _started(number: int, descriptors: Sequence[int]) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", PROGRAM, str(number), *map(str, descriptors)),
        stdin=PIPE,
        pass_fds=descriptors,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )


async def _told(process: Process, settings: GatewaySettings) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # the process has ended already; `run` reports how
        process.stdin.write(pickle.dumps(settings, pickle.HIGHEST_PROTOCOL))
        await process.stdin.drain()
    process.stdin.close()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _seconds_of_a_core(pid: int) -> float:
    """The CPU seconds that a process has used; 0 if the system does not show them."""
    clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) gives it on Linux
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0
