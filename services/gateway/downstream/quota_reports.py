"""The parts of quotas: this gateway reports those that its clients use, and gets its own from control by the router."""

import asyncio

from mesh.quotas.codec import shares_from_proto, uses_to_proto
from mesh.rpc import discovery, quotas
from services.gateway.downstream.answers import Answers
from services.gateway.quotas.accounts import Quotas

EVERY_S = 1.0
"""All gateways together may exceed a quota for so long after its parts have moved from one gateway to another."""


class QuotaReports:
    """See above."""

    def __init__(self, in_force: Quotas) -> None:
        self._quotas = in_force
        self._divided = asyncio.Event()

    def divide(self, parts: quotas.QuotaParts) -> None:
        """This gateway's own parts have come."""
        self._quotas.divide(parts.gateways, shares_from_proto(parts))
        self._divided.set()

    async def run(self, answers: Answers) -> None:
        """Reports to one router, as soon as the router shows that it takes such reports."""
        self._divided.clear()
        await self._divided.wait()
        reported = quotas.QuotaParts()
        while True:
            parts = uses_to_proto(self._quotas.uses(asyncio.get_running_loop().time()))
            if parts != reported:
                answers.add(discovery.WatchRequest(quota_parts=parts))
                reported = parts
            await asyncio.sleep(EVERY_S)
