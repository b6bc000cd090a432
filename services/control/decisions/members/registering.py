"""Updates the register of gateways from the routers' reports, while this process leads."""

from __future__ import annotations

import asyncio

import structlog

from mesh.rpc import admin
from services.control.decisions.members.members import Members
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import Journal
from services.control.store.register import GatewayRegister

LOOK_EVERY = 5.0
"""Seconds after which control compares the register, even without a report: members also go away silently."""
RETRY_AFTER = 1.0

Entry = tuple[str, int, int, bool, bool]
"""The columns of a gateway: address, revision, phase, whether an operator left it out, whether it is connected."""

NOTHING: Entry = ("", -1, -1, False, False)

log = structlog.get_logger(__name__)


class Registering:
    """Call `recall` when the lead begins; `run` runs always."""

    def __init__(self, journal: Journal, members: Members, register: GatewayRegister) -> None:
        self._journal = journal
        self._members = members
        self._register = register
        self._written: dict[str, Entry] = {}

    async def recall(self) -> None:
        """Reads the gateways that the last leader knew. StoreUnavailableError when PostgreSQL does not answer."""
        known = await self._register.load()
        self._written = dict.fromkeys(known, NOTHING)
        self._members.recall(known)

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            try:
                if not self._journal.why_not_leading:
                    await self._write()
            except StoreUnavailableError as error:
                log.info("gateways are written down later", reason=str(error))
                await asyncio.sleep(RETRY_AFTER)
            await self._members.changed_within(LOOK_EVERY)

    async def _write(self) -> None:
        heard = self._members.register()
        entries = {name: _entry(member, connected) for name, (member, connected) in heard.items()}
        new = {name: heard[name] for name, entry in entries.items() if self._written.get(name) != entry}
        gone = self._written.keys() - entries.keys()
        if new or gone:
            await self._register.change(new, gone)
            self._written = entries


def _entry(member: admin.Member, connected: bool) -> Entry:
    return member.address, member.revision, member.phase, member.passed_over, connected
