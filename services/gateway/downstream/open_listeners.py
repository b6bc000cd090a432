"""The listeners of a gateway while it runs: opens, changes and closes them as settings and control want.

Theory of operation
1. `follow` takes control's policy with each table. A listener that is closed or changed lets nobody in by its earlier
   policy from that moment on: its entrance is over, also for clients whose handshake goes on.
2. `run` then opens what is wanted. A listener that can't be opened stays closed, is reported to control, and is tried
   again. The gateway goes on with the others.
3. Connections of a changed listener stay, end within the drain time, or end at once (`wanted_listeners.fate`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import structlog

from mesh.listeners import Policy
from mesh.listeners.codec import CERTIFICATES_TO_PROTO
from mesh.rpc import listeners as pb
from mesh.server_certificate import TlsFiles, TlsFilesError
from services.gateway import metrics
from services.gateway.client_settings import AuthenticationSettings
from services.gateway.downstream.changed_listeners import ChangedListeners
from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.listening import NewClient
from services.gateway.downstream.server_tls import ServerTls
from services.gateway.listeners import Listener
from services.gateway.wanted_listeners import Wanted, wanted

RETRY_S: Final = 2.0
"""The pause before listeners that could not be opened are tried again."""
LONGEST_FAULT: Final = 500
"""Characters of a fault in a report."""
CLOSED: Final = "control has closed it"

log = structlog.get_logger(__name__)


class Reached(Protocol):
    """The places where clients come in: `Ports` of this process, or `Handed` by another process."""

    def bind(self, entrance: Entrance) -> None: ...

    async def admit(self, entrance: Entrance) -> str: ...

    def dismiss(self, name: str) -> None: ...

    def fault(self, name: str) -> str: ...

    def port(self, name: str) -> int: ...

    async def serve(self, new_client: NewClient) -> None: ...

    def close(self) -> None: ...


class OpenListeners:
    """`bind`, `serve` and `run`, then `close`."""

    def __init__(
        self,
        settings: AuthenticationSettings,
        reached: Reached,
        entrance: Callable[[Listener, ServerTls | None], Entrance],
        connections: ChangedListeners,
        on_certificates: Callable[[], None],
    ) -> None:
        """`on_certificates`: files of TLS have changed, so other certificates of clients may be revoked."""
        self._settings = settings
        self._own = settings.listeners
        self._means = settings.means
        self._reached = reached
        self._entrance = entrance
        self._connections = connections
        self._on_certificates = on_certificates
        self._tls: dict[TlsFiles, ServerTls] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._entrances: dict[str, Entrance] = {}
        """The entrances of open listeners, by name."""
        self._faults: dict[str, str] = {}
        """Why wanted listeners could not be opened, by name."""
        self._changed = asyncio.Event()
        self._is_closed = False
        self.by_revision: tuple[int, Wanted] = (0, wanted(self._own, Policy(), self._means))
        """The revision of control's policy, and the listeners by it: one value, which other threads may read."""

    @property
    def wanted(self) -> Wanted:
        return self.by_revision[1]

    @property
    def port(self) -> int:
        """The port of the first listener of the settings; 0 if it is closed."""
        return self._reached.port(self._own[0].name)

    def bind(self, policy: Policy) -> None:
        """Before clients are served. OSError, TlsFilesError: a listener of the settings can't be had."""
        self._want(policy)
        own = {each.name for each in self._own}
        for name, listener in self.wanted.listeners.items():
            try:
                entrance = self._entrance(listener, self._tls_of(listener))
                self._reached.bind(entrance)
                self._entrances[name] = entrance
            except (OSError, TlsFilesError) as error:
                if name in own:
                    raise
                self._faulted(name, str(error))

    async def serve(self, new_client: NewClient) -> None:
        await self._carry_out()  # another policy may have come since `bind`
        await self._reached.serve(new_client)

    def follow(self, policy: Policy) -> None:
        """Control has another policy: see above."""
        if policy.revision == self.by_revision[0]:
            return
        self._want(policy)
        for name in {*self._entrances, *self.wanted.listeners, *self.wanted.faulty}:
            entrance, after = self._entrances.get(name), self.wanted.listeners.get(name)
            if entrance is not None and not entrance.is_over and entrance.of == after:
                continue
            if entrance is not None:
                entrance.is_over = True
            if after is None:
                self._dismiss(name)
            self._connections.changed(name, after or self.wanted.faulty.get(name), is_open=after is not None)
        self._changed.set()

    async def run(self) -> None:
        """Opens what is wanted, until cancelled."""
        for tls in self._tls.values():
            self._follow_files(tls)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._faults else None):
                    await self._changed.wait()
            try:
                await self._carry_out()
            except Exception:  # a fault of the gateway must not end this for good: a later policy may close listeners
                log.exception("listeners could not be changed")

    async def _carry_out(self) -> None:
        self._changed.clear()
        for name, listener in list(self.wanted.listeners.items()):
            entrance = self._entrances.get(name)
            if not self._is_closed and (entrance is None or entrance.is_over):
                await self._open(name, listener)

    def close(self) -> None:
        """No new clients, nowhere."""
        self._is_closed = True
        self._reached.close()
        self._connections.stop()
        for task in self._following:
            task.cancel()

    def report(self) -> list[pb.OpenListener]:
        """The listeners for control, by name: those that are wanted, and those that it has closed."""
        draining = self._connections.draining()
        return [
            pb.OpenListener(
                name=name,
                address=f"{listener.security.value}://{listener.host}:{listener.port}",
                advertised=f"{listener.advertised.host}:{listener.advertised.port}",
                sasl_mechanisms=listener.mechanisms,
                tls_client_auth=CERTIFICATES_TO_PROTO[listener.certificates],
                fault=self._fault(name)[:LONGEST_FAULT],
                decided=name in self.wanted.decided,
                draining=draining[name],
            )
            for name, listener in sorted(self._known.items())
        ]

    @property
    def _known(self) -> dict[str, Listener]:
        """All listeners of the settings and of control, by name."""
        return {each.name: each for each in self._own} | {**self.wanted.listeners, **self.wanted.faulty}

    def _want(self, policy: Policy) -> None:
        self.by_revision = policy.revision, wanted(self._own, policy, self._means)
        self._faults = {name: why for name, why in self._faults.items() if name in self.wanted.listeners}
        for name, fault in self.wanted.faults.items():
            log.error("a listener can't be opened here", listener=name, reason=fault)
        for name in self._known:
            metrics.listener_open.labels(name).set_function(partial(self._is_open, name))

    def _is_open(self, name: str) -> bool:
        return name in self._entrances and not self._fault(name)

    def _fault(self, name: str) -> str:
        if name not in self.wanted.listeners:
            return self.wanted.faults.get(name, CLOSED)
        return self._faults.get(name) or self._reached.fault(name)

    async def _open(self, name: str, listener: Listener) -> None:
        try:
            known = set(self._tls)
            tls = await asyncio.to_thread(self._tls_of, listener)
        except TlsFilesError as error:
            self._failed(name, listener, str(error))
            return
        for files in self._tls.keys() - known:
            self._follow_files(self._tls[files])
        if self._is_closed or self.wanted.listeners.get(name) != listener:  # the policy has changed meanwhile
            return
        entrance = self._entrances[name] = self._entrance(listener, tls)
        fault = await self._reached.admit(entrance)
        if entrance.is_over:  # the same during `admit`: `follow` has seen to its clients, and `run` goes on from there
            if name not in self._entrances:
                self._reached.dismiss(name)
        elif fault:
            self._failed(name, listener, fault)
        else:
            self._faults.pop(name, None)
            self._connections.opened(entrance)

    def _failed(self, name: str, listener: Listener, fault: str) -> None:
        if self.wanted.listeners.get(name) != listener:
            return
        self._dismiss(name)
        self._connections.changed(name, listener, is_open=False)
        self._faulted(name, fault)

    def _dismiss(self, name: str) -> None:
        self._reached.dismiss(name)
        self._entrances.pop(name, None)

    def _faulted(self, name: str, fault: str) -> None:
        if self._faults.get(name) != fault:
            log.error("a listener can't be opened here", listener=name, reason=fault)
        self._faults[name] = fault

    def _follow_files(self, tls: ServerTls) -> None:
        self._following.add(asyncio.get_running_loop().create_task(tls.follow_files(), name="certificates"))

    def _tls_of(self, listener: Listener) -> ServerTls | None:
        """Reads files, the first time. TlsFilesError."""
        files = self._settings.tls_of(listener)
        if files is None:
            return None
        found = self._tls.get(files)
        if found is None:
            found = self._tls[files] = ServerTls(files, self._on_certificates)
        return found
