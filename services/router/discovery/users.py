"""Users with their verifiers, from control to gateways. The router keeps them in memory alone, and none is in its log.

Theory of operation
1. `UserRelay` follows control on a stream of its own. Control alone says which users count: what it says replaces what
   the router has. While control is away, the router keeps the last users, and gives them to gateways that come.
2. Each page of control wakes the streams to gateways, also a page that only confirms. A gateway gets all users first,
   then the changes since its last pages. A gateway that reads slowly gets several changes as one, and no queue grows.
3. Each page says how long ago control has confirmed the users. The router sends nothing while it hears nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog

from mesh.rpc import users, users_grpc
from mesh.rpc.cancellation import heed_cancellation
from mesh.rpc.replicas import Replicas
from mesh.rpc.strangers import refuse_strangers
from mesh.rpc.tls import RpcTls
from mesh.user_tables import SILENCE_S, PageReader, UnusableUsersError, UserTable
from services.router import metrics

NAME = users.DESCRIPTOR.services_by_name["UserDiscoveryService"].full_name
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 3.0
"""Between attempts to reach control."""

log = structlog.get_logger(__name__)


class UserRelay:
    """The last users that control has sent. `run` until cancelled."""

    def __init__(self, addresses: tuple[str, ...], tls: RpcTls | None = None) -> None:
        self.latest: UserTable | None = None
        self._addresses = addresses
        self._tls = tls
        self._heard_at = 0.0
        self._heard = asyncio.Event()
        metrics.users_age.set_function(lambda: 0.0 if self.latest is None else self.age_s)

    @property
    def age_s(self) -> float:
        """Seconds since control has confirmed the users."""
        return time.monotonic() - self._heard_at

    async def next_table(self) -> UserTable:
        """Returns when control has sent or confirmed the users again."""
        await self._heard.wait()
        assert self.latest is not None, "set before the event"
        return self.latest

    async def run(self) -> None:
        pause, said = FIRST_PAUSE_S, ""
        async with Replicas(self._addresses, self._tls) as control:
            while True:
                before = self._heard_at
                try:
                    await self._follow(users_grpc.UserVerifierServiceStub(control).FollowVerifiers())
                    reason = "control has ended the stream"
                except grpc.aio.AioRpcError as error:
                    reason = f"{error.code().name}: {error.details()}"
                except UnusableUsersError as error:
                    reason = f"control has sent {error}"
                except TimeoutError:
                    reason = f"control has sent nothing for {SILENCE_S:g} s"
                heed_cancellation()
                if self._heard_at > before:
                    pause, said = FIRST_PAUSE_S, ""
                if reason != said:
                    log.warning("no users from control; the router tries again", address=control.address, reason=reason)
                    said = reason
                await asyncio.sleep(random.uniform(pause / 2, pause))
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _follow(self, call: Any) -> None:
        """Takes pages until the stream ends."""
        reader = PageReader(self.latest)
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    page = await call.read()
                if not isinstance(page, users.UserTablePage):
                    return
                table = reader.take(page)
                if table is not None:
                    self._take(table)
        finally:
            call.cancel()

    def _take(self, table: UserTable) -> None:
        if table is not self.latest:
            log.info("users from control", edition=table.edition, users=len(table.users.by_name))
            metrics.users.set(len(table.users.by_name))
        self.latest, self._heard_at = table, time.monotonic()
        self._heard.set()
        self._heard = asyncio.Event()


class UserDiscoveryService:
    """One call of FollowUsers for each gateway."""

    def __init__(self, relay: UserRelay) -> None:
        self._relay = relay

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serves the calls that come to this server."""
        pages: Any = self._follow_users
        read, write = users.FollowUsersRequest.FromString, users.UserTablePage.SerializeToString
        follow: Any = grpc.stream_stream_rpc_method_handler(pages, request_deserializer=read, response_serializer=write)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, {"FollowUsers": follow}),))

    async def _follow_users(self, request_iterator: Any, context: Any) -> AsyncIterator[users.UserTablePage]:
        refuse_strangers(context)
        relay = self._relay
        told = relay.latest or await relay.next_table()
        for page in told.pages(relay.age_s):
            yield page
        while True:
            table = await relay.next_table() if relay.latest is told else relay.latest
            assert table is not None, "a relay never forgets"
            for page in table.changes_since(told, relay.age_s):
                yield page
            told = table
