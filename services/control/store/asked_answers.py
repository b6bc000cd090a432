"""The stored answers of requests: calls that ask at the same time share a question to PostgreSQL."""

from __future__ import annotations

import asyncio

from services.control.store.log import EventLog, StoredAnswer


class AskedAnswers:
    """Asks for answers by the ids of their requests. As many ids wait as calls run."""

    def __init__(self, store: EventLog) -> None:
        self._store = store
        self._waiting: dict[str, asyncio.Future[StoredAnswer | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def of(self, request_id: str) -> StoredAnswer | None:
        """The answer of a request, if control has answered it. StoreUnavailableError when PostgreSQL is away."""
        answer = self._waiting.get(request_id)
        if answer is None:
            answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(answer)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    found = await self._store.answers(asked)
                except Exception as error:  # noqa: BLE001  # whatever it is, those who asked get it
                    for answer in asked.values():
                        answer.set_exception(error)
                else:
                    for request_id, answer in asked.items():
                        answer.set_result(found.get(request_id))
        finally:
            self._asking = None
