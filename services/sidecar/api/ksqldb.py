"""`POST /ksqldb/active`: a query of the backend, asked once."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.authentication import caller_of
from services.sidecar.api.contract import CONTRACT, operation_of
from services.sidecar.api.requests import body_of, parsed
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import json_text
from services.sidecar.ksqldb.active_query import ActiveQuery, Asking, QueryType


class KsqldbEndpoints:
    """Queries."""

    def __init__(self, asking: Asking, *, max_request_bytes: int) -> None:
        self._asking = asking
        self._max_request_bytes = max_request_bytes

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.query_ksqldb)

    async def query_ksqldb(self, request: Request) -> Response:
        if not caller_of(request).reads_everything:
            raise Fault(
                FaultKind.AUTH_TOKEN_SCOPE_MISMATCH,
                "A query of ksqlDB may read any topic: it takes a scope kafka:r that is not narrowed",
            )
        members = operation_of(request).body(parsed(request, await body_of(request, self._max_request_bytes)))
        query = ActiveQuery(
            members["query"],
            QueryType(members.get("queryType", "pull")),
            offset=members.get("offset"),
            scans_tables=members.get("tableScanEnable"),
            fails_on_deserialization=members.get("deserializationError"),
            properties=members.get("properties", {}),
        )
        rows = await self._asking.ask(query)
        return Response(json_text.dumps(rows), media_type="application/json")
