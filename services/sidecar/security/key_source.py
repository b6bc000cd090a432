"""Where an issuer's keys come from: its address, asked when they are old, and when a token names a key that is new.

- Keys serve without a question for `max_age`. Then they are asked for again, by one request however many wait.
- An issuer that is away costs nothing but news: the last keys serve on, until they are older than `max_stale`.
- A token that names an unknown key may be of a rotation: the issuer is asked, but never more often than `pause`, so
  that tokens which somebody made up can't be turned into requests to it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import structlog

from services.sidecar import metrics
from services.sidecar.security.keys import Key, KeySet, NotKeysError

LARGEST_ANSWER = 256 * 1024
"""Bytes; a hundred keys with their certificates are less."""

log = structlog.get_logger(__name__)


class KeysUnavailableError(OSError):
    """The issuer's keys can't be had; the reason is for a log."""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Seconds."""

    max_age: float = 300.0
    max_stale: float = 24 * 3600.0
    pause: float = 10.0
    timeout: float = 2.0


class KeySource:
    """The keys of one issuer. `generation` changes with them."""

    def __init__(
        self,
        url: str,
        bounds: KeyBounds,
        trusted: ssl.SSLContext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self.generation = 0
        self._bounds = bounds
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=None, verify=trusted, follow_redirects=False)
        self._keys = KeySet()
        self._got_at = self._asked_at = float("-inf")
        self._fault = ""
        self._asking: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """None when the issuer has no such key. Raises KeysUnavailableError."""
        if self._age() >= self._bounds.max_age:
            await self._ask(patiently=not (self._fault and self._keys.keys))
        if self._age() >= self._bounds.max_stale or not self._keys.keys:
            raise KeysUnavailableError(self._fault)
        key = self._keys.find(key_id, algorithm)
        if key is None:
            await self._ask(patiently=True)
            key = self._keys.find(key_id, algorithm)
            if key is None and self._fault:
                raise KeysUnavailableError(self._fault)
        return key

    async def reload(self) -> None:
        """Asks now, however lately it was asked. Raises KeysUnavailableError; the last keys serve on."""
        self._asked_at = float("-inf")
        await self._ask(patiently=True)
        if self._fault:
            raise KeysUnavailableError(self._fault)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._client.aclose()

    def _age(self) -> float:
        return self._clock() - self._got_at

    async def _ask(self, *, patiently: bool) -> None:
        """Joins a request that is on its way; makes none within the pause. Without patience it is not waited for: keys
        are there, and the issuer is known to be away.
        """
        if self._asking is None:
            if self._clock() - self._asked_at < self._bounds.pause:
                return
            self._asked_at = self._clock()
            self._asking = asyncio.create_task(self._ask_once(), name="issuer-keys")
        if patiently:
            await asyncio.shield(self._asking)

    async def _ask_once(self) -> None:
        try:
            async with asyncio.timeout(self._bounds.timeout):
                keys = KeySet.parse(await self._document())
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, NotKeysError, ValueError, RecursionError) as error:
            self._fault = _reason(error, self._bounds.timeout)
            metrics.token_key_requests.labels("failed").inc()
            log.warning(
                "no keys from the issuer of tokens", url=self.url, reason=self._fault, keys=len(self._keys.keys)
            )
        else:
            if keys != self._keys:
                self._keys, self.generation = keys, self.generation + 1
                log.info("keys of the issuer of tokens", url=self.url, ids=[key.id[:100] for key in keys.keys])
            self._got_at, self._fault = self._clock(), ""
            metrics.token_key_requests.labels("answered").inc()
        finally:
            self._asking = None

    async def _document(self) -> object:
        content = bytearray()
        async with self._client.stream("GET", self.url, headers={"Accept": "application/json"}) as answer:
            if answer.status_code != httpx.codes.OK:
                raise NotKeysError(f"it answers {answer.status_code}")
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER:
                    raise NotKeysError(f"its answer is larger than {LARGEST_ANSWER} bytes")
        document: object = json.loads(content)
        return document


def _reason(error: Exception, timeout: float) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {timeout:g} s"
        case NotKeysError():
            return str(error)
        case ValueError() | RecursionError():
            return "its answer is not JSON"
        case _:
            return str(error) or type(error).__name__
