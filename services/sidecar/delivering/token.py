"""A bearer token for the backend, by the client-credentials grant (RFC 6749, 4.4).

It is asked for when a call needs it, by one request however many wait, and again some time before it expires. An issuer
that does not answer is left in peace for a moment; meanwhile calls fail as those of a backend that is away do.
"""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from mesh.secret_references import UnresolvedReferenceError, resolve_property
from services.sidecar.telemetry import metrics

LARGEST_ANSWER = 256 * 1024
EARLY = 0.2
"""The part of a token's life before whose end the next one is fetched; at most EARLY_SECONDS."""
EARLY_SECONDS = 60.0
USUAL_LIFE_SECONDS = 300.0
"""The life of a token whose issuer names none."""
PAUSE_SECONDS = 1.0
"""The pause between two requests to an issuer that fails."""


class NoTokenError(Exception):
    """The issuer gives no token. The text gives the reason, and no secret."""


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The address of a token's issuer, and the client for whom it is issued. Secrets may be references."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    audience: str = ""
    timeout: float = 5.0
    """Seconds."""


class ClientCredentials:
    """The token of one grant."""

    def __init__(
        self, grant: TokenGrant, trusted: ssl.SSLContext | bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._grant = grant
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=None, verify=trusted, follow_redirects=False, trust_env=False)
        self._token = ""
        self._fresh_until = self._valid_until = self._not_before = float("-inf")
        self._fault = ""
        self._asking: asyncio.Task[None] | None = None

    async def token(self) -> str:
        """A token that is valid now. NoTokenError if the issuer gives none."""
        if self._clock() >= self._fresh_until:
            await self._ask()
        if self._clock() >= self._valid_until:
            raise NoTokenError(self._fault or f"the token of {self._grant.url} has expired")
        return self._token

    def refused(self, token: str) -> None:
        """The backend does not take this one: the next call fetches another."""
        if token == self._token:
            self._fresh_until = self._valid_until = float("-inf")

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._client.aclose()

    async def _ask(self) -> None:
        if self._asking is None:
            if self._clock() < self._not_before:
                return
            self._asking = asyncio.create_task(self._ask_once(), name="backend-token")
        await asyncio.shield(self._asking)

    async def _ask_once(self) -> None:
        try:
            async with asyncio.timeout(self._grant.timeout):
                token, life = await self._granted()
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, NoTokenError) as error:
            self._fault = f"no token from {self._grant.url}: {_reason(error, self._grant.timeout)}"
            self._not_before = self._clock() + PAUSE_SECONDS
            metrics.backend_tokens.labels("failed").inc()
        else:
            self._token, self._fault = token, ""
            self._valid_until = self._clock() + life
            self._fresh_until = self._valid_until - min(life * EARLY, EARLY_SECONDS)
            metrics.backend_tokens.labels("granted").inc()
        finally:
            self._asking = None

    async def _granted(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials", "scope": self._grant.scope, "audience": self._grant.audience}
        request = self._client.build_request(
            "POST",
            self._grant.url,
            data={name: text for name, text in form.items() if text},
            headers={"Accept": "application/json", "Authorization": await asyncio.to_thread(self._authorization)},
        )
        answer = await self._client.send(request, stream=True)
        try:
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER:
                    raise NoTokenError(f"its answer is larger than {LARGEST_ANSWER} bytes")
        finally:
            await answer.aclose()
        return _token_in(answer.status_code, bytes(content))

    def _authorization(self) -> str:
        """Reads the secret anew, which may be in a file that changes."""
        try:
            client_id = resolve_property("backend_token_client_id", self._grant.client_id)
            secret = resolve_property("backend_token_client_secret", self._grant.client_secret)
        except UnresolvedReferenceError as error:
            raise NoTokenError(str(error)) from None
        pair = f"{client_id}:{secret}"  # not encoded: librdkafka and nearly all clients send them so
        return f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"


def _token_in(status: int, content: bytes) -> tuple[str, float]:
    """The token and its life in seconds.

    An issuer's text of a refusal may repeat the secret, so only its code is shown.
    """
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    if status != httpx.codes.OK:
        code = told.get("error") if isinstance(told, dict) else None
        known = f" ({code})" if code in _ERROR_CODES else ""
        raise NoTokenError(f"it answers {status}{known}")
    if not isinstance(told, dict) or not isinstance(told.get("access_token"), str):
        raise NoTokenError("its answer has no access_token")
    if str(told.get("token_type", "bearer")).lower() != "bearer":
        raise NoTokenError("its token is no bearer token")
    token = told["access_token"]
    if not token.isascii() or not token.isprintable():
        raise NoTokenError("its access_token cannot be sent in a header")
    life = told.get("expires_in", USUAL_LIFE_SECONDS)
    is_number = isinstance(life, int | float) and not isinstance(life, bool) and life > 0
    return token, float(life) if is_number else USUAL_LIFE_SECONDS


_ERROR_CODES = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
     "invalid_scope", "temporarily_unavailable", "server_error"}
)  # fmt: skip


def _reason(error: Exception, timeout: float) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {timeout:g} s"
        case _:
            return str(error) or type(error).__name__
