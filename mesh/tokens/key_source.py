"""The keys of an issuer, read from its address when they are old, and when a token names a new key.

- An issuer whose keys have no address in the settings is asked for its document first, each time.
- Keys serve without a request for `max_age`. Then one request reads them again, however many callers wait.
- If the issuer does not answer, the last keys serve on, until they are older than `max_stale`.
- A token that names an unknown key may mean that the issuer has new keys. So the issuer is asked, but never more often
  than `pause`: made-up tokens must not cause a flood of requests to the issuer.
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

from mesh.tokens.addresses import NotKeysError, document_url, keys_url
from mesh.tokens.keys import Key, KeySet

LARGEST_ANSWER = 256 * 1024
"""The size of an issuer's answer in bytes, at most; a hundred keys with their certificates are smaller."""

log = structlog.get_logger(__name__)


class KeysUnavailableError(OSError):
    """The issuer's keys can't be read; the reason is for a log."""


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Bounds on the age of keys, in seconds."""

    max_age: float = 300.0
    max_stale: float = 24 * 3600.0
    pause: float = 10.0
    timeout: float = 2.0


class KeySource:
    """The keys of one issuer. `generation` changes when the keys change."""

    def __init__(
        self,
        url: str,
        issuer: str,
        bounds: KeyBounds,
        trusted: ssl.SSLContext,
        clock: Callable[[], float] = time.monotonic,
        on_request: Callable[[str], object] = str,
    ) -> None:
        """`url`: the address of the keys; if empty, the document of `issuer` names it. `on_request` gets the outcome
        of each request: "answered" or "failed".
        """
        self._issuer = issuer
        self._discovers = not url
        self._address = url or document_url(issuer)
        self.generation = 0
        self._bounds = bounds
        self._clock = clock
        self._on_request = on_request
        self._client = httpx.AsyncClient(timeout=None, verify=trusted, follow_redirects=False)
        self._keys = KeySet()
        self._got_at = self._asked_at = float("-inf")
        self._fault = ""
        self._asking: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """The key that a token names; None when the issuer has no such key. Raises KeysUnavailableError."""
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
        """Asks the issuer now, even right after another request. KeysUnavailableError; then the last keys serve on."""
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
        """Joins a request that runs already; makes no request within the pause. Without patience, the caller does not
        wait for the request: it has keys, and the issuer is known not to answer.
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
            self._on_request("failed")
            log.warning(
                "no keys from the issuer of tokens", url=self._address, reason=self._fault, keys=len(self._keys.keys)
            )
        else:
            if keys != self._keys:
                self._keys, self.generation = keys, self.generation + 1
                log.info("keys of the issuer of tokens", url=self._address, ids=[key.id[:100] for key in keys.keys])
            self._got_at, self._fault = self._clock(), ""
            self._on_request("answered")
        finally:
            self._asking = None

    async def _document(self) -> object:
        found = await self._read(self._address)
        return await self._read(keys_url(found, self._issuer)) if self._discovers else found

    async def _read(self, url: str) -> object:
        """The JSON at an address."""
        content = bytearray()
        async with self._client.stream("GET", url, headers={"Accept": "application/json"}) as answer:
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
