"""A gRPC server in control's place: it gives the answers that a test scripts, and keeps what it was asked.

It speaks the real protocol over a real socket; only the decisions are scripted. tests/integration/meshctl has the real
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc_status import rpc_status

from mesh.rpc import (
    acls,
    admin,
    audit,
    drains,
    instances,
    lineage,
    move_certificates,
    pipelines,
    profiles,
    proposals,
    quotas,
    record_rules,
    replays,
    topic_moves,
    topics,
    traffic,
    transactions,
)

SERVICES = {
    **acls.DESCRIPTOR.services_by_name,
    **admin.DESCRIPTOR.services_by_name,
    **drains.DESCRIPTOR.services_by_name,
    **instances.DESCRIPTOR.services_by_name,
    **lineage.DESCRIPTOR.services_by_name,
    **move_certificates.DESCRIPTOR.services_by_name,
    **quotas.DESCRIPTOR.services_by_name,
    **record_rules.DESCRIPTOR.services_by_name,
    **replays.DESCRIPTOR.services_by_name,
    **audit.DESCRIPTOR.services_by_name,
    **pipelines.DESCRIPTOR.services_by_name,
    **profiles.DESCRIPTOR.services_by_name,
    **proposals.DESCRIPTOR.services_by_name,
    **topic_moves.DESCRIPTOR.services_by_name,
    **topics.DESCRIPTOR.services_by_name,
    **traffic.DESCRIPTOR.services_by_name,
    **transactions.DESCRIPTOR.services_by_name,
}


@dataclass(frozen=True)
class Refusal:
    """A status with details, as control gives it."""

    code: grpc.StatusCode
    message: str
    details: tuple[Message, ...] = ()


Answer = Message | Refusal | Sequence[Message]
Script = Answer | Callable[[Any], Answer]


@dataclass(frozen=True)
class Call:
    """What was asked, and by whom."""

    method: str
    request: Any
    metadata: dict[str, str]
    time_left: float | None


class ScriptedControl:
    """Give `answers` by method name; a method without one answers with an empty message."""

    def __init__(self) -> None:
        self.answers: dict[str, Script] = {}
        self.calls: list[Call] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        for service in SERVICES.values():
            handlers = {method.name: self._handler(method) for method in service.methods}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def requests(self, method: str) -> list[Any]:
        return [call.request for call in self.calls if call.method == method]

    def _handler(self, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

        def note(request: Any, context: grpc.ServicerContext) -> Answer:
            metadata = {key: str(value) for key, value in context.invocation_metadata()}
            self.calls.append(Call(method.name, request, metadata, context.time_remaining()))
            script = self.answers.get(method.name, response_class())
            answer = script(request) if callable(script) else script
            if isinstance(answer, Refusal):
                context.abort_with_status(rpc_status.to_status(_status(answer)))
            return answer

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            return note(request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            answer = note(request, context)
            assert isinstance(answer, Sequence)
            yield from answer

        read, write = request_class.FromString, response_class.SerializeToString
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, read, write)
        return grpc.unary_unary_rpc_method_handler(unary, read, write)


def _status(refusal: Refusal) -> status_pb2.Status:
    details: list[AnyMessage] = []
    for message in refusal.details:
        packed = AnyMessage()
        packed.Pack(message)
        details.append(packed)
    return status_pb2.Status(code=refusal.code.value[0], message=refusal.message, details=details)
