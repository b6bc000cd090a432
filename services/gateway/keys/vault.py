"""A service of keys that is the transit engine of HashiCorp Vault, or of OpenBao: keys never leave it.

Theory of operation
1. A key id is the name of a key of the engine. A data key is made by `datakey/plaintext`, and unwrapped by `decrypt`.
   The newest version of the key wraps. A version below `min_decryption_version`, or a key that was deleted, is gone.
2. An answer with status 400 that says so means that the key is gone. Every other failure means that the service is
   away: no answer, a sealed Vault, a token that has ended, a mount that is not there, a policy that forbids the path. A
   fault of the configuration must not pass for a key that was destroyed.
3. The token is a reference to a secret, and read anew for each call: an agent of Vault may renew it in its file.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
from typing import Any, Final
from urllib.parse import quote

import httpx

from mesh.protection.keys import KEY_BYTES, DataKey, KeyGoneError, KeysAwayError, Wrapped
from mesh.secret_references import UnresolvedReferenceError, resolve

LARGEST_ANSWER: Final = 64 * 1024
"""Bytes; an answer with a data key has some hundred."""
TIMEOUT_S: Final = 3.0
GONE: Final = (
    "encryption key not found",
    "ciphertext or signature version is disallowed by policy (too old)",
    "invalid ciphertext",
    "message authentication failed",
)
"""Faults of the engine that mean: this data key can't be unwrapped by any key that is there."""


class Vault:
    """See above."""

    def __init__(self, url: str, token: str, trusted: ssl.SSLContext) -> None:
        """`url`: with the path of the engine, https://vault:8200/transit; `token`: a reference, or the token itself."""
        base, _, mount = url.rstrip("/").rpartition("/")
        self._base = f"{base}/v1/{mount}"
        self._token = token
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, verify=trusted, follow_redirects=False, trust_env=False)

    async def make(self, key_id: str) -> DataKey:
        data = await self._ask(f"datakey/plaintext/{quote(key_id, safe='')}", {"bits": KEY_BYTES * 8}, key_id)
        return DataKey(Wrapped(key_id, _text(data, "ciphertext").encode()), _secret(data))

    async def unwrap(self, name: Wrapped) -> bytes:
        try:
            ciphertext = name.wrapped.decode("ascii")
        except UnicodeDecodeError:
            raise KeyGoneError(f"the data key of key {name.key_id!r} was not wrapped by Vault") from None
        if not ciphertext.startswith("vault:v"):
            raise KeyGoneError(f"the data key of key {name.key_id!r} was not wrapped by Vault")
        body = {"ciphertext": ciphertext}
        return _secret(await self._ask(f"decrypt/{quote(name.key_id, safe='')}", body, name.key_id))

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, path: str, body: object, key_id: str) -> dict[str, Any]:
        try:
            token = await asyncio.to_thread(resolve, self._token)
            async with asyncio.timeout(TIMEOUT_S):
                status, answer = await self._post(f"{self._base}/{path}", token, body)
        except UnresolvedReferenceError as error:
            raise KeysAwayError(f"Vault needs a token: {error}") from None
        except TimeoutError:
            raise KeysAwayError(f"Vault has not answered within {TIMEOUT_S:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
            raise KeysAwayError(f"Vault does not answer: {type(error).__name__}") from None
        if status == httpx.codes.OK and isinstance(answer.get("data"), dict):
            data: dict[str, Any] = answer["data"]
            return data
        errors = " ".join(str(each) for each in answer.get("errors") or ())
        if status == httpx.codes.BAD_REQUEST and any(each in errors for each in GONE):
            raise KeyGoneError(f"key {key_id!r} is gone: Vault has no version of it that unwraps this data key")
        raise KeysAwayError(f"Vault answers {status} about key {key_id!r}")

    async def _post(self, url: str, token: str, body: object) -> tuple[int, dict[str, Any]]:
        content = bytearray()
        headers = {"X-Vault-Token": token, "X-Vault-Request": "true"}
        async with self._client.stream("POST", url, json=body, headers=headers) as answer:
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER:
                    raise ValueError
        found = json.loads(content) if content else {}
        return answer.status_code, found if isinstance(found, dict) else {}


def _text(data: dict[str, Any], name: str) -> str:
    text = data.get(name)
    if not isinstance(text, str):
        raise KeysAwayError(f"Vault's answer has no {name}")
    return text


def _secret(data: dict[str, Any]) -> bytes:
    try:
        secret = base64.b64decode(_text(data, "plaintext"), validate=True)
    except (binascii.Error, ValueError):
        raise KeysAwayError("Vault's answer has no base64") from None
    if len(secret) != KEY_BYTES:
        raise KeysAwayError(f"Vault's answer has a data key of {len(secret)} bytes, and {KEY_BYTES} are right")
    return secret
