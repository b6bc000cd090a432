"""Signs the log with the present certificate of control, if the last event is signed with another one, or not at all.

Routers take what control has signed, and trust their present authorities. So the end of the log has a signature of the
present certificate: after an upgrade from a release without signatures, and after a renewal of the certificate.
"""

from __future__ import annotations

import asyncio

import structlog

from mesh.member_keys import MemberKeys
from mesh.rpc import events
from services.control.domain.errors import Refusal
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal

LOOK_EVERY_S = 10.0
STREAM = "log"

log = structlog.get_logger(__name__)


class LogSigning:
    """`run` while this control leads."""

    def __init__(self, journal: Journal, keys: MemberKeys) -> None:
        self._journal = journal
        self._keys = keys

    async def run(self) -> None:
        """Checks the end of the log every few seconds."""
        while True:
            try:
                await self._sign()
            except (Refusal, StoreUnavailableError) as error:
                log.warning("control can't sign the log yet", reason=str(error), next_try_s=LOOK_EVERY_S)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _sign(self) -> None:
        if self._journal.view.position and self._journal.chain.key_id != self._keys.key_id:
            payload = events.LogSigned(subject=self._keys.subject, key_id=self._keys.key_id)
            caller = Caller(CONTROL, "the log ends with an event that this certificate has not signed")
            await self._journal.append([Draft(STREAM, payload)], caller, self._journal.view, rests_on=lambda _: None)
