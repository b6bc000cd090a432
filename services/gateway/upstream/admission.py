"""How a broker admits a connection of the gateway: the keys, the login, and its renewal.

If the broker bounds a login in time (KIP-368), the gateway renews the login before it ends. The renewal goes behind the
requests that were sent; requests that come meanwhile wait.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol

from services.gateway.requests.plan import RawResponse, Sent, Unreachable
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.keyring import Keyring, KeyringError, Keys
from services.gateway.upstream.sasl import Login, LoginRefusedError, Step
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Struct

RENEW_FROM, RENEW_TO = 0.85, 0.95
"""Part of a login's life after which it is renewed, at random between these, as Kafka's own clients do."""
LOGIN_TIMEOUT_S: Final = 30.0
"""Time for each answer; the answers to earlier requests come first."""


class ConnectionEndedError(Exception):
    """The connection ended while a request of the gateway's own waited for an answer."""


class Door(Protocol):
    """The connection, as far as a login goes."""

    address: str
    ended: str | None

    async def clear(self) -> None:
        """Wait until all of the request that is midway has been sent."""

    def say(self, message: Struct, version: int, timeout_s: float, settle: Settle) -> None:
        """Send this, whether the connection is ready for others or not."""

    def admitted(self) -> None:
        """Other requests may be sent from now on ..."""

    def ask_to_wait(self) -> None:
        """... and from now on they wait."""

    def broke_off(self, reason: str, kind: str) -> None:
        """The connection is of no use."""


class Admission:
    """The admission of one connection."""

    def __init__(self, door: Door, keyring: Keyring | None) -> None:
        """Without a keyring the connection is plain text."""
        self._door = door
        self._keyring = keyring
        self._host = ""
        self._judging = False
        """Whether an answer to the login is being judged: it says more than the lost connection that often follows."""
        self._lost: str | None = None
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self.needs_login = False

    async def enter(self, host: str, connect: Callable[[ssl.SSLContext | None], Awaitable[object]]) -> None:
        """`connect`, then log in where the cluster asks for it.

        Raises KeyringError, LoginRefusedError, ConnectionEndedError, and what `connect` does.
        """
        self._host = host
        keys = Keys() if self._keyring is None else await self._keyring.keys()
        self.needs_login = keys.credentials is not None
        await connect(keys.tls)
        if keys.credentials is not None:
            await self._log_in(Login(keys.credentials, self._host))

    async def _log_in(self, login: Login) -> None:
        """Raises LoginRefusedError or ConnectionEndedError."""
        step: Step | None = login.begin()
        while step is not None:
            answer = await self._say(step)
            step = await asyncio.to_thread(login.next, answer)
            self._judging = False
            if self._lost is not None:
                self._door.broke_off(self._lost, "lost")
        if self._door.ended is not None:
            raise ConnectionEndedError(self._door.ended)
        if login.lifetime_s:
            after_s = login.lifetime_s * random.uniform(RENEW_FROM, RENEW_TO)
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(after_s, self._begin_renewal, login.authenticate_version)
        self._door.admitted()

    async def _say(self, step: Step) -> Struct:
        await self._door.clear()
        if self._door.ended is not None:
            raise ConnectionEndedError(self._door.ended)
        told: asyncio.Future[RawResponse] = asyncio.get_running_loop().create_future()

        def settle(outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
            if told.done():
                return
            if isinstance(outcome, RawResponse):
                self._judging = True
                told.set_result(replace(outcome, frame=memoryview(bytes(outcome.frame))))
            else:
                told.set_exception(ConnectionEndedError(self._door.ended))

        self._door.say(step.message, step.version, LOGIN_TIMEOUT_S, settle)
        try:
            return (await told).decode(step.answer)
        except WireError as error:
            raise LoginRefusedError(f"an answer that is not {step.answer.__name__} v{step.version}: {error}") from None

    def _begin_renewal(self, authenticate_version: int | None) -> None:
        task = asyncio.get_running_loop().create_task(
            self._renew(authenticate_version), name=f"log in to {self._door.address} again"
        )
        self._renewal = task

    async def _renew(self, authenticate_version: int | None) -> None:
        try:
            keys = Keys() if self._keyring is None else await self._keyring.keys()
            if keys.credentials is not None:
                self._door.ask_to_wait()
                await self._log_in(Login(keys.credentials, self._host, authenticate_version))
        except (KeyringError, LoginRefusedError) as error:
            self.refused(error)
        except ConnectionEndedError:
            pass  # the code that ended it has logged the reason

    def refused(self, error: KeyringError | LoginRefusedError | ssl.SSLError) -> None:
        """The broker refuses the gateway: doubt the keys, and close the connection."""
        if self._keyring is not None:
            self._keyring.doubt(login_refused=isinstance(error, LoginRefusedError))
        address = self._door.address
        match error:
            case KeyringError():
                reason = f"no connection to {address}: {error}"
            case LoginRefusedError():
                reason = f"{address} does not let us in: {error}"
            case ssl.SSLCertVerificationError():
                reason = f"{address} shows a certificate that we don't trust: {error.verify_message}"
            case _:
                reason = f"no TLS with {address}: {error.reason or error}"
        self._door.broke_off(reason, "security")

    # --- what the connection tells -------------------------------------------------------------------------------

    def lost(self, reason: str) -> bool:
        """The connection is gone. Returns whether an answer is being judged: its verdict then gives the reason."""
        self._lost = reason
        return self._judging

    def never_heard(self) -> None:
        """The connection failed before its broker answered anything: the keys may be the cause."""
        if self._keyring is not None:
            self._keyring.doubt()

    def end(self) -> None:
        if isinstance(self._renewal, asyncio.TimerHandle):
            self._renewal.cancel()
