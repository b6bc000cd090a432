"""The client of a ksqlDB server: HTTP/2, as its query streams want it.

All requests go over one connection, and that one is asked for a sign of life now and then (`ping`): an idle query
stream and a dead server look alike otherwise. A slow reader is felt by the server through HTTP/2's flow control.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from services.sidecar import json_text
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
"""Of answers that are no stream of rows."""
TOKENS_ENABLED = "ksql.query.push.v2.continuation.tokens.enabled"
"""Property of a query that shall send continuation tokens."""
TOKEN = "request.ksql.query.push.continuation.token"
"""Property of a request that goes on where a token says."""

Properties = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KsqldbOptions:
    """Where the server is, who we are, and how long it may take."""

    url: str
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None
    """None for cleartext, or what the system trusts."""
    timeout: float = 10.0
    """Seconds: to connect, to write, and until a query begins."""
    max_line_bytes: int = 1024 * 1024


class KsqldbUnavailableError(Exception):
    """The server is not there, does not answer in time, or breaks off."""


class QueryStream:
    """A query that has begun, as long as it is open."""

    def __init__(self, header: Header, arrivals: AsyncIterator[Sequence[Frame]]) -> None:
        self.header = header
        self._arrivals = arrivals

    def __aiter__(self) -> AsyncIterator[Sequence[Frame]]:
        """What comes after the header, as much at a time as there is. Ends with the query.

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
        """A query that has begun; ends with the context. `token`: where to go on, from an earlier stream.

        KsqldbError when it is refused, KsqldbUnavailableError, BrokenStreamError.
        """
        body: dict[str, Any] = {"sql": sql, "properties": dict(properties), "sessionVariables": {}}
        if token:
            body["requestProperties"] = {TOKEN: token}
        request = self._client.build_request(
            "POST",
            "/query-stream",
            content=orjson.dumps(body),
            headers={"Accept": MEDIA_TYPE, "Content-Type": "application/json"},
            timeout=httpx.Timeout(self._options.timeout, read=None),  # rows come when they come
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
        """Has a push query end. False when the server knows it no more."""
        try:
            await self._ask("POST", "/close-query", {"queryId": query_id})
        except KsqldbError as error:
            if error.may_pass:
                raise
            return False
        return True

    async def execute(self, statement: str, properties: Properties) -> Sequence[Mapping[str, Any]]:
        """Runs a statement that is no query; what the server says of it. KsqldbError, KsqldbUnavailableError."""
        said = await self._ask("POST", "/ksql", {"ksql": statement, "streamsProperties": dict(properties)})
        return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []

    async def ping(self) -> None:
        """A sign of life, over the connection that the queries have. KsqldbUnavailableError."""
        with contextlib.suppress(KsqldbError):  # it refuses us, so it lives
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
    """Rows that came before an error are rows."""
    frames: list[Frame] = []
    try:
        for frame in reader.feed(chunk):
            frames.append(frame)  # noqa: PERF402  # one by one: what came before an error stays
    except (KsqldbError, BrokenStreamError) as error:
        return frames, error
    return frames, None


async def _after(
    rest: Sequence[Frame], arrivals: AsyncIterator[Sequence[Frame]]
) -> AsyncGenerator[Sequence[Frame], None]:
    """What came with the header, and all that comes."""
    if rest:
        yield rest
    async for frames in arrivals:
        yield frames


async def _raise_for(answer: httpx.Response) -> None:
    """KsqldbError, in the server's words where it has some."""
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
    """The whole answer, which is no stream. KsqldbUnavailableError when it is too long."""
    text = bytearray()
    async for chunk in answer.aiter_bytes():
        text += chunk
        if len(text) > MAX_ANSWER_BYTES:
            raise KsqldbUnavailableError(f"an answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(text)


def _unavailable(error: httpx.HTTPError) -> KsqldbUnavailableError:
    return KsqldbUnavailableError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
