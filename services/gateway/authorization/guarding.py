"""The plan of a request whose client is under a policy."""

from __future__ import annotations

from mesh.acls import Operation, ResourceType
from services.gateway.authorization.access import Access
from services.gateway.authorization.asking import Asking
from services.gateway.authorization.refusals import Report
from services.gateway.authorization.shapes import top
from services.gateway.authorization.table import GUARDS
from services.gateway.requests.handler import Handler
from services.gateway.requests.plan import Close, MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.schema import Kind, fields_of, message_of


def guarded(handler: Handler, request: Request, mesh: MeshView, access: Access, report: Report) -> Plan:
    """As the handler's own plan, for what the client may do."""
    guard = GUARDS.get(handler.api_key, unguarded)
    return guard(Asking(handler, request, mesh, access, report))


def unguarded(asking: Asking) -> Plan:
    """An API without a row: nobody has said what it needs, so nobody may do it."""
    if asking.refused(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return (yield from asking.pass_on())
    spec = message_of(asking.request.api_key, Kind.RESPONSE)
    if spec is None or all(name != "error_code" for name, _, _ in fields_of(spec.cls)):
        return Close("the gateway has no rule about who may use this API")
    return top(spec.cls)(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)  # type: ignore[no-any-return]
