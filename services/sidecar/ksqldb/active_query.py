"""Queries that are asked once (`POST /ksqldb/active`): their rows as objects, within bounds."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.ksqldb.client import KsqldbClient, KsqldbUnavailableError, Properties, QueryStream
from services.sidecar.ksqldb.frames import BrokenStreamError, KsqldbError, Row


class QueryType(Enum):
    """Whether a query ends by itself."""

    PULL = "pull"
    PUSH = "push"
    """The sidecar ends a push query as soon as the query has begun; the rows that came by then are the answer."""


@dataclass(frozen=True, slots=True)
class ActiveQuery:
    """A backend's query."""

    sql: str
    type: QueryType = QueryType.PULL
    offset: str | None = None
    """The start of a push query: earliest or latest."""
    scans_tables: bool | None = None
    """Whether a pull query may look through a whole table."""
    fails_on_deserialization: bool | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    def to_send(self) -> tuple[str, Properties]:
        """The statement and its properties for the server; quotes may come escaped, as in the original."""
        named = {
            "auto.offset.reset": self.offset,
            "ksql.query.pull.table.scan.enabled": self.scans_tables,
            "fail.on.deserialization.error": self.fails_on_deserialization,
        }
        return self.sql.replace("\\'", "'"), {
            **self.properties,
            **{name: value for name, value in named.items() if value is not None},
        }


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Bounds of one answer."""

    seconds: float
    rows: int
    bytes: int


class Asking:
    """Asks for the backend."""

    def __init__(self, client: KsqldbClient | None, limits: AnswerLimits) -> None:
        """Without a client every query is refused."""
        self._client = client
        self._limits = limits

    async def ask(self, query: ActiveQuery) -> list[dict[str, Any]]:
        """The rows, each by its columns' names. Fault, with the server's reason."""
        if self._client is None:
            raise _failed("no ksqlDB server can be asked; set ksqldb_url, and ksqldb_active_enabled")
        client = self._client
        sql, properties = query.to_send()
        try:
            async with asyncio.timeout(self._limits.seconds), client.query(sql, properties) as stream:
                if query.type is QueryType.PUSH and stream.header.query_id:
                    await client.close_query(stream.header.query_id)
                return await self._rows(stream)
        except TimeoutError:
            raise _failed(
                f"the query did not end within {self._limits.seconds:g} s (ksqldb_answer_timeout_ms); narrow it, or "
                'say queryType "push" for one that never ends'
            ) from None
        except KsqldbError as error:
            if error.may_pass and error.status:
                raise _unavailable(f"{error}{f' ({error.code})' if error.code else ''}") from None
            raise _failed(f"{error}{f' ({error.code})' if error.code else ''}") from None
        except (KsqldbUnavailableError, BrokenStreamError) as error:
            raise _unavailable(str(error)) from None

    async def _rows(self, stream: QueryStream) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        size = 0
        async for frames in stream:
            for frame in frames:
                if not isinstance(frame, Row):
                    continue
                size += len(frame.text)
                if len(rows) >= self._limits.rows or size > self._limits.bytes:
                    raise _failed(
                        f"the answer has more than {self._limits.rows} rows (ksqldb_answer_max_rows) or "
                        f"{self._limits.bytes} bytes (ksqldb_answer_max_bytes); narrow the query"
                    )
                rows.append(dict(zip(stream.header.columns, frame.values(), strict=False)))
        return rows


def _failed(reason: str) -> Fault:
    return Fault(FaultKind.KSQL_IMPLEMENTATION_ERROR, reason)


def _unavailable(reason: str) -> Fault:
    return Fault(FaultKind.KSQLDB_UNAVAILABLE, f"ksqlDB cannot answer now: {reason}; try again")
