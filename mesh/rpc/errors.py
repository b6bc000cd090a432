"""gRPC errors with details, the same from every server (google.rpc status model; AIP-193)."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

ERROR_DOMAIN = "kafka-mesh"


class RpcError(Exception):
    """An answer other than OK: code, one sentence for people, details for programs."""

    def __init__(self, code: grpc.StatusCode, message: str, details: Sequence[Message] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = tuple(details)

    def status(self) -> grpc.Status:
        """As gRPC sends it: `await context.abort_with_status(error.status())`."""
        packed = []
        for detail in self.details:
            packed.append(Any())
            packed[-1].Pack(detail)
        code: Code.ValueType = self.code.value[0]
        return rpc_status.to_status(Status(code=code, message=self.message, details=packed))


def bad_request(field: str, description: str) -> RpcError:
    """INVALID_ARGUMENT: `field` (path in the request) is wrong, and what would be right."""
    violation = BadRequest.FieldViolation(field=field, description=description)
    details = [BadRequest(field_violations=[violation])]
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, f"{field}: {description}", details)


def precondition(kind: str, subject: str, description: str) -> RpcError:
    """FAILED_PRECONDITION: the state of the mesh does not allow it; `kind` in capitals, `subject` a resource name."""
    violation = PreconditionFailure.Violation(type=kind, subject=subject, description=description)
    return RpcError(grpc.StatusCode.FAILED_PRECONDITION, description, [PreconditionFailure(violations=[violation])])


def _with_info(code: grpc.StatusCode, reason: str, message: str, metadata: dict[str, str] | None) -> RpcError:
    return RpcError(code, message, [ErrorInfo(reason=reason, domain=ERROR_DOMAIN, metadata=metadata or {})])


def not_found(resource: str, message: str) -> RpcError:
    """NOT_FOUND: no resource of that name."""
    return _with_info(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", message, {"resource": resource})


def already_exists(resource: str, message: str) -> RpcError:
    """ALREADY_EXISTS: a resource of that name, or the same thing under another name, is there."""
    return _with_info(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", message, {"resource": resource})


def denied(message: str) -> RpcError:
    """PERMISSION_DENIED: the caller is known, and may not make this call."""
    return _with_info(grpc.StatusCode.PERMISSION_DENIED, "NOT_ALLOWED", message, None)


def aborted(reason: str, message: str, metadata: dict[str, str] | None = None) -> RpcError:
    """ABORTED: lost against another change, or a rollout was given up; read again and retry."""
    return _with_info(grpc.StatusCode.ABORTED, reason, message, metadata)


def unavailable(reason: str, message: str, metadata: dict[str, str] | None = None) -> RpcError:
    """UNAVAILABLE: something that the call needs is gone for now; the same call may succeed later."""
    return _with_info(grpc.StatusCode.UNAVAILABLE, reason, message, metadata)


def deadline_exceeded(reason: str, message: str, metadata: dict[str, str] | None = None) -> RpcError:
    """DEADLINE_EXCEEDED: what was decided stands, and what the call waited for did not come in time."""
    return _with_info(grpc.StatusCode.DEADLINE_EXCEEDED, reason, message, metadata)
