"""The client of a ksqlDB server, over HTTP/2, which ksqlDB's query streams require.

All requests go over one connection. A `ping` over the same connection tells a dead server from an idle query stream. If
the reader is slow, HTTP/2's flow control slows the server down.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from services.sidecar.formats import json_text
from services.sidecar.ksqldb.frames import (
    MEDIA_TYPE,
    BrokenStreamError,
    Frame,
    FrameReader,
    Header,
    KsqldbError,
    error_of,
)

STATEMENT_MEDIA_TYPE = "application/vnd.ksql.v1+json"
MAX_ANSWER_BYTES = 1024 * 1024
"""The size of an answer that is no stream of rows, at most."""
TOKENS_ENABLED = "ksql.query.push.v2.continuation.tokens.enabled"
"""The property of a query that asks for continuation tokens."""
TOKEN = "request.ksql.query.push.continuation.token"
"""The property of a request that resumes behind a token."""

Properties = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KsqldbOptions:
    """The server's address, the sidecar's identity, and the bounds in time and size."""

    url: str
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None
    """None for cleartext, or for TLS with the authorities that the system trusts."""
    timeout: float = 10.0
    """Seconds: to connect, to write, and until a query begins."""
    max_line_bytes: int = 1024 * 1024


class KsqldbUnavailableError(Exception):
    """The server is unreachable, does not answer in time, or breaks off."""


class QueryStream:
    """A query that has begun, as long as it is open."""

    def __init__(self, header: Header, arrivals: AsyncIterator[Sequence[Frame]]) -> None:
        self.header = header
        self._arrivals = arrivals

    def __aiter__(self) -> AsyncIterator[Sequence[Frame]]:
        """The frames after the header, as many at a time as have come. The iterator ends with the query.

        KsqldbError when the server ends it by an error, KsqldbUnavailableError, BrokenStreamError.
        """
        return self._arrivals


class KsqldbClient:
    """One for a sidecar; use `close`."""

    def __init__(self, options: KsqldbOptions) -> None:
        self._options = options
        self._client = httpx.AsyncClient(
            base_url=options.url,
            http1=False,
            http2=True,
            verify=options.tls or True,
            auth=httpx.BasicAuth(options.user, options.password) if options.user else None,
            timeout=httpx.Timeout(options.timeout),
            limits=httpx.Limits(max_connections=1, keepalive_expiry=None),
            trust_env=False,
        )

    @contextlib.asynccontextmanager
    async def query(self, sql: str, properties: Properties, token: str = "") -> AsyncIterator[QueryStream]:
        """A query that has begun; the query ends with the context. `token`: resumes behind this token of an earlier
        stream.

        KsqldbError when the server refuses the query, KsqldbUnavailableError, BrokenStreamError.
        """
        body: dict[str, Any] = {"sql": sql, "properties": dict(properties), "sessionVariables": {}}
        if token:
            body["requestProperties"] = {TOKEN: token}
        request = self._client.build_request(
            "POST",
            "/query-stream",
            content=orjson.dumps(body),
            headers={"Accept": MEDIA_TYPE, "Content-Type": "application/json"},
            timeout=httpx.Timeout(self._options.timeout, read=None),  # a query may have no rows for any time
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._options.timeout):
                    answer = await stack.enter_async_context(self._sent(request))
                    await _raise_for(answer)
                    arrivals = await stack.enter_async_context(
                        contextlib.aclosing(_arrivals(answer, self._options.max_line_bytes))
                    )
                    first = await anext(arrivals, ())
            except TimeoutError:
                raise KsqldbUnavailableError(f"no query began within {self._options.timeout:g} s") from None
            header = first[0] if first else None
            if not isinstance(header, Header):
                raise BrokenStreamError("the query stream began without its columns")
            rows = await stack.enter_async_context(contextlib.aclosing(_after(first[1:], arrivals)))
            yield QueryStream(header, rows)

    async def close_query(self, query_id: str) -> bool:
        """Ends a push query. False when the server does not know the query any more."""
        try:
            await self._ask("POST", "/close-query", {"queryId": query_id})
        except KsqldbError as error:
            if error.may_pass:
                raise
            return False
        return True

    async def execute(self, statement: str, properties: Properties) -> Sequence[Mapping[str, Any]]:
        """Runs a statement that is no query; returns the server's answer. KsqldbError, KsqldbUnavailableError."""
        said = await self._ask("POST", "/ksql", {"ksql": statement, "streamsProperties": dict(properties)})
        return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []

    async def ping(self) -> None:
        """Asks for a sign of life, over the connection of the queries. KsqldbUnavailableError."""
        with contextlib.suppress(KsqldbError):  # a server that refuses the request is alive
            await self._ask("GET", "/info", None)

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        headers = {"Accept": STATEMENT_MEDIA_TYPE, **({"Content-Type": STATEMENT_MEDIA_TYPE} if body else {})}
        content = None if body is None else orjson.dumps(body)
        request = self._client.build_request(method, path, content=content, headers=headers)
        try:
            async with asyncio.timeout(self._options.timeout), self._sent(request) as answer:
                await _raise_for(answer)
                text = await _read(answer)
        except TimeoutError:
            raise KsqldbUnavailableError(f"no answer to {path} within {self._options.timeout:g} s") from None
        try:
            return json_text.loads(text) if text.strip() else None
        except json_text.JsonError:
            raise KsqldbUnavailableError(f"the answer to {path} is not JSON") from None

    @contextlib.asynccontextmanager
    async def _sent(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise _unavailable(error) from None
        try:
            yield answer
        except httpx.HTTPError as error:
            raise _unavailable(error) from None
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await answer.aclose()


async def _arrivals(answer: httpx.Response, max_line_bytes: int) -> AsyncGenerator[Sequence[Frame], None]:
    reader = FrameReader(max_line_bytes)
    try:
        async for chunk in answer.aiter_bytes():
            frames, error = _fed(reader, chunk)
            if frames:
                yield frames
            if error is not None:
                raise error
    except httpx.HTTPError as error:
        raise _unavailable(error) from None
    if last := list(reader.end()):
        yield last


def _fed(reader: FrameReader, chunk: bytes) -> tuple[list[Frame], Exception | None]:
    """The frames of a chunk, and the error that ended them, if any: rows before an error count."""
    frames: list[Frame] = []
    try:
        for frame in reader.feed(chunk):
            frames.append(frame)  # noqa: PERF402  # one by one, so that frames before an error stay
    except (KsqldbError, BrokenStreamError) as error:
        return frames, error
    return frames, None


async def _after(
    rest: Sequence[Frame], arrivals: AsyncIterator[Sequence[Frame]]
) -> AsyncGenerator[Sequence[Frame], None]:
    """The frames that came with the header, then all further frames."""
    if rest:
        yield rest
    async for frames in arrivals:
        yield frames


async def _raise_for(answer: httpx.Response) -> None:
    """KsqldbError for an error answer, with the server's text if the answer has text."""
    if answer.status_code < httpx.codes.BAD_REQUEST:
        return
    text = await _read(answer)
    try:
        said = json_text.loads(text)
    except json_text.JsonError:
        said = None
    if isinstance(said, dict) and "message" in said:
        raise error_of(said, answer.status_code)
    raise KsqldbError(f"the server answers {answer.status_code}", status=answer.status_code)


async def _read(answer: httpx.Response) -> bytes:
    """The whole of an answer that is no stream. KsqldbUnavailableError when the answer is too long."""
    text = bytearray()
    async for chunk in answer.aiter_bytes():
        text += chunk
        if len(text) > MAX_ANSWER_BYTES:
            raise KsqldbUnavailableError(f"an answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(text)


def _unavailable(error: httpx.HTTPError) -> KsqldbUnavailableError:
    return KsqldbUnavailableError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
