"""How this gateway gets users with passwords from control: it follows a router, on a stream of its own.

Theory of operation
1. The gateway follows one router, as it does for tables (`discovery.py`). If the stream ends, the gateway follows the
   next router that it can reach. Meanwhile the last users count. If there are several routers, the gateway leaves a
   router that sends nothing for long: that router does not reach control.
2. Users count as soon as all pages of an edition are here. The connections of users who are gone, or have another
   verifier, end in the same turn of the event loop. Then the gateway keeps the users on disk (`last_users.py`).
3. The gateway refuses users that it can't use, and users of an earlier edition, all of them: the last users count on.
4. If no users have ever come, nobody can log in with a password. The client gets no answer, and tries again.
"""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc.aio
import structlog

from mesh import durations
from mesh.rpc import users, users_grpc
from mesh.rpc.cancellation import heed_cancellation
from mesh.user_files import Users
from mesh.user_tables import SILENCE_S, PageReader, UnusableUsersError, UserTable
from services.gateway import metrics
from services.gateway.downstream import last_users
from services.gateway.downstream.routers import NoRouterError, Routers

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
"""The pause between two streams. It is drawn from half of this to all of it: gateways lose a router all at once."""
LONGEST_PATIENCE_S: Final = 60.0
"""The time that a router may send nothing grows to this, while no router sends anything."""


class UserDiscovery:
    """`run` until cancelled, then `stop`."""

    def __init__(self, routers: Routers, state_dir: Path, on_users: Callable[[Users], None]) -> None:
        """`on_users` gets all users, first those on disk. UnusableTableError if the file can't be used."""
        self.looked = asyncio.Event()
        """Set when a router has sent users, or no router can be reached."""
        self._routers = routers
        self._on_users = on_users
        self._keeper = last_users.UserKeeper(state_dir)
        self._table: UserTable | None = None
        self._confirmed_at = time.monotonic()
        """When control has confirmed the users; the start, if there are none."""
        kept = last_users.load(state_dir)
        if kept is not None:
            self._confirmed_at -= kept.age_s
            self._table = kept.table
            on_users(kept.table.users)
        metrics.users_age.set_function(lambda: time.monotonic() - self._confirmed_at)

    @property
    def has_users(self) -> bool:
        """Whether users have ever come."""
        return self._table is not None

    async def run(self) -> None:
        pause, patience, said = FIRST_PAUSE_S, SILENCE_S, ""
        while True:
            reader, reason = PageReader(self._table), "the router has ended the stream"
            before = self._confirmed_at
            try:
                async with self._routers.connected() as router:
                    call = users_grpc.UserDiscoveryServiceStub(router.channel).FollowUsers()
                    await self._follow(call, reader, patience if len(self._routers) > 1 else None)
            except NoRouterError as error:
                reason = str(error)
            except TimeoutError:
                reason = f"the router has sent nothing for {patience:g} s"
            except UnusableUsersError as error:
                metrics.refused_users.inc()
                reason = f"users are refused, the last users count on: {error}"
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
            except Exception:  # a fault of the gateway must not end this for good
                log.exception("users of control could not be taken")
            heed_cancellation()
            self.looked.set()
            if self._confirmed_at != before:
                pause, patience, said = FIRST_PAUSE_S, SILENCE_S, ""
            if reason != said:
                log.warning("no users from a router; trying on", reason=reason, has_users=self.has_users)
                said = reason
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause, patience = min(LONGEST_PAUSE_S, 2 * pause), min(LONGEST_PATIENCE_S, 1.5 * patience)

    async def stop(self) -> None:
        """Returns when the last users are on disk."""
        await self._keeper.written()

    async def _follow(self, call: Any, reader: PageReader, patience_s: float | None) -> None:
        """Takes pages until the stream ends."""
        while True:
            async with asyncio.timeout(patience_s):
                page = await call.read()
            if not isinstance(page, users.UserTablePage):
                return
            table = reader.take(page)
            if table is not None:
                self._take(table, durations.whole_ms(page.age) / 1000)

    def _take(self, table: UserTable, age_s: float) -> None:
        known = self._table
        if known is not None and table.edition < known.edition:
            raise UnusableUsersError(f"edition {table.edition} is older than {known.edition}, which counts here")
        self._confirmed_at = time.monotonic() - age_s
        if table is known:
            return
        self._table = table
        self._on_users(table.users)
        self._keeper.keep(table)
        self.looked.set()
