"""`kafka-mesh up`: looks that everything can start, runs the supervisor, and says what is where."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from local.certificates import write_certificates
from local.layout import ADMIN, STATE_FOLDER, Layout
from local.ports import taken
from local.processes import log_tail
from local.readiness import KafkaReady
from local.services import Service
from local.supervisor import Change, StartError, State, Supervisor

MARKS = {
    State.READY: "[green]✓[/green]",
    State.DONE: "[green]✓[/green]",
    State.CRASHED: "[red]✗[/red]",
    State.DOWN: "[yellow]◌[/yellow]",
    State.STOPPED: "[dim]■[/dim]",
}
REFRESH_S = 0.5
RENEWAL_CHECK_S = 3600.0
EXIT_TAKEN = 3
EXIT_NOT_STARTED = 1


class Progress:
    """One line for each change of a service, and, on a terminal, the services that are awaited."""

    def __init__(self, layout: Layout, console: Console) -> None:
        self._layout = layout
        self._console = console
        self._starting: dict[str, Service] = {}
        self._status: Status = console.status("")

    def __call__(self, change: Change) -> None:
        self._starting.pop(change.service.name, None)
        if change.state is State.STARTING:
            self._starting[change.service.name] = change.service
        if mark := MARKS.get(change.state):
            took = f" [dim]{change.took_s:.1f} s[/dim]" if change.took_s else ""
            detail = f" [dim]{change.detail}[/dim]" if change.detail else ""
            line = f"{mark} {change.service.name:<10} {change.service.what:<22} {change.state}{took}{detail}"
            self._console.print(line, highlight=False)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        async def keep_current() -> None:
            while True:
                self._status.update(f"starting {', '.join(map(self._described, self._starting.values()))} ...")
                await asyncio.sleep(REFRESH_S)

        refreshing = asyncio.create_task(keep_current())
        try:
            with self._status:
                yield
        finally:
            refreshing.cancel()

    def _described(self, service: Service) -> str:
        """The progress of a step: the last line of its log."""
        said = log_tail(self._layout.log(service), 1)[:60] if service.is_step else ""
        return f"{service.what} [dim]({escape(said)})[/dim]" if said else service.what


@contextmanager
def sole_user(state: Path) -> Iterator[bool]:
    """Whether nobody else runs a mesh in this state folder, for as long as the block lasts."""
    state.mkdir(parents=True, exist_ok=True, mode=0o711)  # the database's user passes through it, nobody lists it
    with (state / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def up(layout: Layout, *, no_pipeline: str = "") -> int:
    """Run the mesh until a signal; the exit code. `no_pipeline`: why it has none, for people."""
    console = Console(highlight=False, soft_wrap=True)
    with sole_user(layout.state) as alone:
        if not alone:
            console.print(f"a mesh is already running with {layout.state}: stop it, or give another --state-dir")
            return EXIT_TAKEN
        if complaints := taken(layout.needed_ports()):
            for complaint in complaints:
                console.print(complaint)
            console.print("Stop what holds it, or give this mesh other ports: --port NAME=PORT, or --port-base PORT.")
            return EXIT_TAKEN
        silent = silent_clusters(layout.clusters)
        for name, complaint in silent.items():
            console.print(complaint, markup=False)
            if name == next(iter(layout.clusters)):
                console.print("Start it, or correct --cluster: decisions are published on the first cluster.")
                return EXIT_NOT_STARTED
        if no_pipeline:
            console.print(f"without the pipeline: {no_pipeline}", markup=False)
        return asyncio.run(_supervise(layout, console))


def silent_clusters(clusters: Mapping[str, str]) -> dict[str, str]:
    """One sentence for each given cluster of which no address answers, before anything is started.

    Only the first is needed: a mesh that knows another one already starts without it, as it goes on without it.
    """
    complaints: dict[str, str] = {}
    for name, bootstrap in clusters.items():
        reasons = [KafkaReady(address).unmet() for address in bootstrap.split(",")]
        if all(reasons):
            complaints[name] = f"cluster {name} does not answer: {'; '.join(filter(None, reasons))}"
    return complaints


async def _supervise(layout: Layout, console: Console) -> int:
    began = time.monotonic()
    progress = Progress(layout, console)
    asked_to_stop = _signals()
    supervisor = Supervisor(layout, layout.services(), progress)
    layout.write_endpoints()
    exit_code = 0
    try:
        async with progress.waiting():
            starting = asyncio.create_task(supervisor.start())
            stop = asyncio.create_task(asked_to_stop.wait())
            await asyncio.wait([starting, stop], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            else:
                starting.cancel()
        if not asked_to_stop.is_set():
            _welcome(layout, console, time.monotonic() - began)
            running = asyncio.create_task(supervisor.run())
            renewing = asyncio.create_task(keep_certificates(layout, console))
            await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            renewing.cancel()
            if running.done() and not running.cancelled():
                running.result()
    except StartError as error:
        console.print(f"[red]✗[/red] {escape(str(error))}")
        exit_code = EXIT_NOT_STARTED
    finally:
        console.print("stopping ...")
        await supervisor.stop()
    return exit_code


async def keep_certificates(layout: Layout, console: Console, check_s: float = RENEWAL_CHECK_S) -> None:
    """Sign certificates again before they end; services read the new files while they run."""
    while True:
        await asyncio.sleep(check_s)
        try:
            signed = await asyncio.to_thread(write_certificates, layout.certificates, layout.owners())
        except OSError as error:  # a full disk, for example; months are left to free it
            console.print(f"certificates can't be renewed: {error}; next attempt in {check_s:g} s", markup=False)
        else:
            for owner in signed:
                console.print(f"the certificate of {owner.role} {owner.name} is renewed", markup=False)


def _signals() -> asyncio.Event:
    """Set by the first Ctrl-C, SIGTERM or hang-up; the second one ends us at once, and the kernel our children."""
    event = asyncio.Event()

    def on_signal() -> None:
        if event.is_set():
            os._exit(130)
        event.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return event


def _welcome(layout: Layout, console: Console, took_s: float) -> None:
    table = Table(title=f"The mesh is ready ({took_s:.1f} s)", title_justify="left")
    for column in ("what", "address", "state"):
        table.add_column(column, no_wrap=True)
    for service in layout.services():
        if not service.is_step:
            table.add_row(service.what, layout.address(service), "[green]ready[/green]")
    for name, bootstrap in layout.clusters.items():
        table.add_row(f"Kafka cluster {name}", bootstrap, "yours")
    console.print(table)
    console.print(
        f"meshctl finds control, and calls it with the certificate in {layout.certificates / ADMIN}.", markup=False
    )
    if not layout.example:
        return
    second = list(layout.all_clusters())[1 % len(layout.all_clusters())]
    console.print("Paste into another terminal:\n")
    if layout.state != Path(STATE_FOLDER).resolve():  # where the commands look by themselves
        console.print(f"  export KAFKA_MESH_STATE_DIR={shlex.quote(str(layout.state))}", markup=False)
    for line in paste_lines(_command_folder(), second):
        console.print(f"  {line}", markup=False)
    console.print(f"\nCtrl-C stops all; state and logs stay in {layout.state}.")


def paste_lines(commands: str, other_cluster: str) -> tuple[str, str, str, str]:
    """Produce, consume, change a rule, ask why."""
    return (
        f"echo 'hello' | {commands}kafka-mesh produce apples",
        f"{commands}kafka-mesh consume apples --count 1",
        f"{commands}meshctl rule set --prefix apples --to {other_cluster}",
        f"{commands}meshctl explain apples",
    )


def _command_folder() -> str:
    """How the shell finds our commands: `.venv/bin/` in a checkout, nothing when they are on PATH."""
    folder = Path(sys.executable).parent
    try:
        return f"{folder.relative_to(Path.cwd())}/"
    except ValueError:
        return "" if str(folder) in os.environ.get("PATH", "").split(os.pathsep) else f"{folder}/"
