"""Follows one push query for ever, and gives its rows to the backend, one after the other.

1. The next row is read only when the backend has taken the row before: HTTP/2's flow control slows the server down.
2. If the backend does not take a row, the row is given again, after longer and longer pauses. A row is skipped only if
   the backend refuses it in every attempt that `max_retries` allows.
3. A stream that ends, breaks off, or whose server gives no sign of life is restarted. If the server sends continuation
   tokens, the query resumes behind the last token whose rows the backend took, so rows after that token come again.
   Otherwise `auto.offset.reset` decides: `earliest` gives every row again, `latest` loses the rows in between.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import structlog

from mesh.pauses import pause
from services.sidecar.ksqldb.client import (
    TOKENS_ENABLED,
    KsqldbClient,
    KsqldbUnavailableError,
    QueryStream,
)
from services.sidecar.ksqldb.frames import BrokenStreamError, ContinuationToken, Header, KsqldbError, Row
from services.sidecar.ksqldb.rows import RowFormat, body_of
from services.sidecar.telemetry import metrics

LONGEST_ASKED_PAUSE = 300.0
"""The longest pause, in seconds, that a backend may ask for."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FollowedQuery:
    """The query to follow, and the form in which the backend gets its rows."""

    sql: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    initial_statements: Sequence[str] = ()
    """Statements to run before the query: they make the streams and tables that the query needs."""
    row_format: RowFormat = RowFormat.ARRAY
    batch_rows: int = 1
    """Rows of one post, at most. With 1, each row is posted by itself, not within an array."""
    continuation: bool = True
    """Whether the server is asked for continuation tokens."""


@dataclass(frozen=True, slots=True)
class FollowLimits:
    """Waits in seconds, and the number of retries for a row that the backend refuses."""

    first_pause: float = 1.0
    longest_pause: float = 30.0
    heartbeat: float = 15.0
    max_retries: int = 3

    def pause(self, failures: int) -> float:
        """Seconds before the next attempt, after this many failures in a row."""
        return pause(failures, self.first_pause, self.longest_pause)


class NotTaken(Exception):  # noqa: N818  # the backend's answer, not an error of ours
    """The backend did not take rows."""

    def __init__(self, why: str, *, refused: bool, pause: float | None = None) -> None:
        super().__init__(why)
        self.refused = refused
        """Whether the backend refused the rows themselves: such rows may be skipped in the end."""
        self.pause = pause
        """The pause, in seconds, that the backend asked for."""


Give = Callable[[bytes], Awaitable[None]]
"""Posts a body to the backend. NotTaken when the backend does not take the body."""


class FollowState(Enum):
    """The state of a followed query."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"


@dataclass(slots=True)
class Following:
    """The progress of a followed query, for health."""

    state: FollowState = FollowState.STARTING
    query_id: str = ""
    rows: int = 0
    """The number of rows that the backend took."""
    skipped: int = 0
    problem: str = ""


class RowFollower:
    """The background task that follows the query."""

    def __init__(self, client: KsqldbClient, query: FollowedQuery, limits: FollowLimits, give: Give) -> None:
        self._client = client
        self._query = query
        self._limits = limits
        self._give = give
        self._token = ""
        self._are_statements_run = False
        self.following = Following()

    async def run(self) -> None:
        """Follows the query for ever."""
        failures = 0
        while True:
            rows_before = self.following.rows
            try:
                await self._prepare()
                await self._follow()
                problem = "the server ended the query"
            except (KsqldbError, KsqldbUnavailableError, BrokenStreamError) as error:
                problem = str(error) or type(error).__name__
            failures = 1 if self.following.rows > rows_before else failures + 1
            self._retry(problem, failures)
            await asyncio.sleep(self._limits.pause(failures))

    async def fault(self) -> str | None:
        """The reason why rows do not come, for readiness; None while rows come."""
        one = self.following
        if one.state is FollowState.RUNNING:
            return one.problem or None
        return f"the ksqlDB query is not followed: {one.problem or 'it has not begun yet'}"

    def details(self) -> dict[str, object]:
        """The details for health."""
        one = self.following
        return {
            "queryId": one.query_id,
            "state": one.state.value,
            "rows": one.rows,
            "skipped": one.skipped,
            **({"problem": one.problem} if one.problem else {}),
        }

    async def _prepare(self) -> None:
        """Makes the streams and tables. A stream or table that exists already is no error."""
        if self._are_statements_run:
            return
        for statement in self._query.initial_statements:
            try:
                await self._client.execute(statement, self._query.properties)
            except KsqldbError as error:
                if error.may_pass or "already exists" not in str(error):
                    raise
                log.info("a stream or table of ksqlDB is there already", reason=str(error))
        self._are_statements_run = True

    async def _follow(self) -> None:
        properties = dict(self._query.properties)
        if self._query.continuation:
            properties.setdefault(TOKENS_ENABLED, True)
        try:
            async with self._client.query(self._query.sql, properties, self._token) as stream:
                self._began(stream.header)
                async with _beside(self._heartbeat()):
                    await self._take_all(stream)
        except KsqldbError as error:
            if not error.may_pass:
                self._token = ""  # the server may have refused the query because it forgot the token
            raise

    async def _take_all(self, stream: QueryStream) -> None:
        most = self._query.batch_rows
        async for frames in stream:
            waiting: list[Row] = []
            for frame in frames:
                match frame:
                    case Row():
                        waiting.append(frame)
                        if len(waiting) >= most:
                            await self._given(stream.header, waiting)
                            waiting = []
                    case ContinuationToken(token):
                        await self._given(stream.header, waiting)
                        waiting = []
                        self._token = token
            await self._given(stream.header, waiting)

    async def _given(self, header: Header, rows: Sequence[Row]) -> None:
        """Returns when the backend has taken the rows, or has refused them as often as it may."""
        if not rows:
            return
        body = body_of(header, rows, self._query.row_format, batched=self._query.batch_rows > 1)
        failures = refusals = 0
        while True:
            try:
                await self._give(body)
            except NotTaken as problem:
                failures += 1
                refusals += problem.refused
                self.following.problem = f"the backend does not take rows: {problem}"
                metrics.ksqldb_rows.labels("retried").inc(len(rows))
                if failures == 1:
                    log.warning("the backend does not take rows", rows=len(rows), reason=str(problem))
                if refusals > self._limits.max_retries:
                    self._skip(rows, str(problem))
                    return
                asked = min(problem.pause or 0, LONGEST_ASKED_PAUSE)
                await asyncio.sleep(max(asked, self._limits.pause(failures)))
            else:
                self.following.rows += len(rows)
                self.following.problem = ""
                metrics.ksqldb_rows.labels("taken").inc(len(rows))
                return

    def _skip(self, rows: Sequence[Row], reason: str) -> None:
        """Skips rows. Rows have no topic of dead letters, because their query can be asked again."""
        self.following.skipped += len(rows)
        self.following.problem = ""
        metrics.ksqldb_rows.labels("skipped").inc(len(rows))
        log.error("rows are skipped: the backend refuses them", rows=len(rows), reason=reason)

    async def _heartbeat(self) -> None:
        """Ends with KsqldbUnavailableError when the server gives no sign of life."""
        while True:
            await asyncio.sleep(self._limits.heartbeat)
            await self._client.ping()

    def _began(self, header: Header) -> None:
        one = self.following
        one.state, one.query_id, one.problem = FollowState.RUNNING, header.query_id, ""
        metrics.ksqldb_up.set(1)
        log.info("a ksqlDB query is followed", query=header.query_id, goes_on=bool(self._token))

    def _retry(self, problem: str, failures: int) -> None:
        one = self.following
        one.state, one.problem = FollowState.RETRYING, problem
        metrics.ksqldb_up.set(0)
        metrics.ksqldb_restarts.inc()
        if failures == 1:
            log.warning("a ksqlDB query is begun again", query=one.query_id, reason=problem)


@contextlib.asynccontextmanager
async def _beside(watch: Any) -> Any:
    """Runs a watch beside the block; its error ends the block."""
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch)
            yield
            watching.cancel()
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None
