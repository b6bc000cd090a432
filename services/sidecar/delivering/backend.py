"""The backend over HTTP: makes one call within its bounds, and reports its failure. Decides nothing.

All deliverers share the open connections. An answer is read up to its bound; an answer with an error status is read
only for its explanation. No message holds a secret (headers, tokens, keys, logins and queries of addresses).
"""

import asyncio
import ssl
import time
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

from mesh.secret_references import UnresolvedReferenceError, resolve_property
from services.sidecar.delivering.failures import TOO_LARGE, Blame, CallFailedError, blame_for, retry_after
from services.sidecar.delivering.slots import Slots
from services.sidecar.delivering.token import ClientCredentials, NoTokenError, TokenGrant
from services.sidecar.telemetry import metrics

KEEP_ALIVE_SECONDS = 2.0
"""Idle connections; less than servers keep theirs, so that none is used that its server is about to close."""
LARGEST_EXPLANATION = 4 * 1024
"""Bytes that are read of an answer that is no success."""
UNAUTHORIZED = 401
_ALWAYS = {
    "User-Agent": f"kafka-mesh-sidecar/{version('kafka-mesh')}",
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # the backend is beside the sidecar
}
_parsed = lru_cache(maxsize=128)(httpx.URL)


class BackendSettingsError(ValueError):
    """The backend cannot be called with these settings. The text names the setting, never a content."""


@dataclass(frozen=True, slots=True)
class BackendAccess:
    """How the backend is reached. Times in seconds; secrets may be references."""

    url: str
    """Scheme, host and port."""
    path: str = "/kafka/records"
    """The path for batches that name no other path."""
    health_path: str = "/health"
    timeout: float = 300.0
    """The time-out of one call, from its beginning to the last byte of its answer."""
    connect_timeout: float = 5.0
    health_timeout: float = 2.0
    max_answer_bytes: int = 4 * 1024 * 1024
    max_connections: int = 100
    closes_connections: bool = False
    """Whether each call has a connection of its own, and sends `Connection: close`."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with each call."""
    token: TokenGrant | None = None
    ca: Path | None = None
    """Authorities that the backend, and the issuer of tokens, are trusted by; the system's otherwise."""
    certificate: Path | None = None
    key: Path | None = None
    key_password: str = field(default="", repr=False)


class Backend:
    """One backend. The constructor reads certificates: BackendSettingsError."""

    def __init__(self, access: BackendAccess, slots: Slots | None = None) -> None:
        """`slots`: the number of calls at a time; by default, the number of connections."""
        self._access = access
        self.slots = slots or Slots(access.max_connections)
        """May be resized at any time. While a call waits for a slot, no time-out runs."""
        self.url = access.url.rstrip("/")
        """May be changed at any time; open calls end at the old address."""
        self.path = access.path
        trusted = _trusted(access)
        kept = 0 if access.closes_connections else access.max_connections
        # the transport beneath httpx's client takes a fifth of the client's time; cookies and redirects are not wanted
        # here
        self._transport = httpx.AsyncHTTPTransport(
            verify=trusted,
            limits=httpx.Limits(
                max_connections=access.max_connections,
                max_keepalive_connections=kept,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
            trust_env=False,
        )
        self._timeouts = httpx.Timeout(access.timeout, connect=access.connect_timeout).as_dict()
        self._credentials = ClientCredentials(access.token, trusted) if access.token else None
        self._headers: dict[str, str] | None = None

    async def call(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """The body of an answer that is a success. CallFailedError otherwise."""
        async with self.slots:
            return await self._called(path, body, headers)

    async def _called(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        began = time.perf_counter()
        outcome = "cancelled"
        metrics.backend_open_calls.inc()
        try:
            async with asyncio.timeout(self._access.timeout):
                answer = await self._with_token("POST", self.url + (path or self.path), body, headers)
        except TimeoutError:
            outcome = "timeout"
            raise self._failed(f"did not answer within {self._access.timeout:g} s", Blame.UNCLEAR, outcome) from None
        except CallFailedError as failure:
            outcome = failure.outcome
            raise
        else:
            outcome = "answered"
            return answer
        finally:
            metrics.backend_open_calls.dec()
            metrics.backend_calls.labels(outcome).inc()
            metrics.backend_call_seconds.observe(time.perf_counter() - began)

    async def get(self, path: str, seconds: float) -> bytes:
        """The body of the answer to a GET that is a success. CallFailedError otherwise."""
        try:
            async with asyncio.timeout(seconds):
                return await self._with_token("GET", self.url + path, b"", {})
        except TimeoutError:
            raise self._failed(f"did not answer within {seconds:g} s", Blame.UNCLEAR, "timeout") from None

    async def is_alive(self) -> bool:
        """Whether it answers at all when asked for its health: even that it has no such page shows that it is there."""
        try:
            async with asyncio.timeout(self._access.health_timeout):
                answer = await self._sent("GET", self.url + self._access.health_path, dict(_ALWAYS))
                await answer.aclose()
                return answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL):
            return False

    async def close(self) -> None:
        await self._transport.aclose()
        if self._credentials is not None:
            await self._credentials.close()

    async def _with_token(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Sends the request; sends it once more with a new token if the backend refuses the old token."""
        token = await self._token()
        try:
            return await self._answered(method, url, body, headers, token)
        except CallFailedError as failure:
            if failure.outcome != str(UNAUTHORIZED):
                raise
            self._headers = None  # the target of a reference may have changed
            if self._credentials is None:
                raise
            self._credentials.refused(token)
        return await self._answered(method, url, body, headers, await self._token())

    async def _answered(self, method: str, url: str, body: bytes, headers: dict[str, str], token: str) -> bytes:
        sent = {**_ALWAYS, **headers, **await self._fixed_headers()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if self._access.closes_connections:
            sent["Connection"] = "close"
        try:
            answer = await self._sent(method, url, sent, body)
            try:
                if not answer.is_success:
                    raise await self._refusal(answer)
                return await self._content(answer)
            finally:
                await answer.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = f"cannot be reached: {_said(error)}"
            raise self._failed(reason, Blame.BACKEND, "unreachable") from None
        except httpx.PoolTimeout:
            reason = f"has all its {self._access.max_connections} connections in use"
            raise self._failed(reason, Blame.BACKEND, "no_connection") from None
        except httpx.TimeoutException:
            reason = f"did not answer within {self._access.timeout:g} s"
            raise self._failed(reason, Blame.UNCLEAR, "timeout") from None
        except httpx.HTTPError as error:
            reason = f"broke the connection off: {_said(error)}"
            raise self._failed(reason, Blame.UNCLEAR, "reset") from None
        except httpx.InvalidURL:
            raise self._failed("has an address that is none", Blame.BACKEND, "unreachable") from None

    async def _sent(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> httpx.Response:
        """The head of an answer; to be closed. httpx.HTTPError, httpx.InvalidURL."""
        extensions = {"timeout": self._timeouts}
        request = httpx.Request(method, _parsed(url), headers=headers, content=body, extensions=extensions)
        return await self._transport.handle_async_request(request)

    async def _content(self, answer: httpx.Response) -> bytes:
        """The whole content within the bound; the rest of a larger content is never read."""
        most = self._access.max_answer_bytes
        announced = answer.headers.get("Content-Length", "")
        parts: list[bytes] = []
        size = int(announced) if announced.isdigit() and not answer.headers.get("Content-Encoding") else 0
        if size <= most:
            size = 0
            async for part in answer.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > most:
                    break
        if size > most:
            raise self._failed(f"answers with more than {most} bytes", Blame.UNCLEAR, "bad_answer")
        return b"".join(parts)

    async def _refusal(self, answer: httpx.Response) -> CallFailedError:
        status = answer.status_code
        said = bytearray()
        try:
            async for part in answer.aiter_bytes():
                said += part
                if len(said) >= LARGEST_EXPLANATION:
                    break
        except httpx.HTTPError:
            pass  # the status has arrived, and is more useful than a failure to read its explanation
        failure = CallFailedError(
            f"the backend at {self._place} answers {status}",
            blame_for(status),
            outcome=str(status),
            is_too_large=status == TOO_LARGE,
            retry_after=retry_after(answer.headers.get("Retry-After", ""), time.time()),
        )
        explanation = bytes(said[:LARGEST_EXPLANATION]).decode(errors="replace").strip()
        failure.stacktrace = f"{failure.reason}: {explanation}" if explanation else failure.reason
        return failure

    async def _token(self) -> str:
        if self._credentials is None:
            return ""
        try:
            return await self._credentials.token()
        except NoTokenError as error:
            raise CallFailedError(str(error), Blame.BACKEND, outcome="no_token") from None

    async def _fixed_headers(self) -> dict[str, str]:
        if self._headers is None:
            try:
                self._headers = await asyncio.to_thread(_resolved, self._access.headers) if self._access.headers else {}
            except (UnresolvedReferenceError, BackendSettingsError) as error:
                raise CallFailedError(str(error), Blame.BACKEND, outcome="settings") from None
        return self._headers

    @property
    def _place(self) -> str:
        """The address without anything that could be secret."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))

    def _failed(self, what: str, blame: Blame, outcome: str) -> CallFailedError:
        return CallFailedError(f"the backend at {self._place} {what}", blame, outcome=outcome)


def _resolved(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    found = {name: resolve_property(f"backend_headers {name}", value) for name, value in headers}
    for name, value in found.items():
        if not value.isprintable():
            raise BackendSettingsError(f"backend_headers {name}: what it refers to is no value of a header")
    return found


def _trusted(access: BackendAccess) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca)
    except (OSError, ssl.SSLError) as error:
        raise BackendSettingsError(f"backend_ca {access.ca}: {error.strerror or 'no certificates in PEM'}") from None
    if access.certificate is None:
        return context
    try:
        password = resolve_property("backend_key_password", access.key_password)
        # a function, because OpenSSL asks at the terminal for a password that is None
        context.load_cert_chain(access.certificate, access.key, password=lambda: password)
    except UnresolvedReferenceError as error:
        raise BackendSettingsError(str(error)) from None
    except (OSError, ssl.SSLError) as error:
        why = error.strerror if error.strerror and not isinstance(error, ssl.SSLError) else "not in PEM, not its key"
        raise BackendSettingsError(f"backend_certificate {access.certificate}, backend_key: {why}") from None
    return context


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
