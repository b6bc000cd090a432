"""Requests under a policy, without sockets: what goes on to the API's own plan, and what the client is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from mesh.acls import Acl, Operation, PatternType, Permission, Policy, ResourceType
from services.gateway.authentication.principal import Principal
from services.gateway.authorization.access import Access, Authorization, Mode
from services.gateway.authorization.guarding import guarded
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.handler import Handler
from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.frames import SIZE_BYTES, encode_request, encode_response, parse_request_header
from services.gateway.wire.schema import Kind, Struct, Type, api_key_of, fields_of, message_of
from tests.unit.gateway.requests.playbook import World

BOB = Principal("bob", "PLAIN")
NAMES = ("apples", "bananas", "cherries")


def acl(permission: str, operation: Operation, kind: ResourceType, name: str, principal: str = "User:bob") -> Acl:
    """A name that ends in `...` is a prefix."""
    pattern = PatternType.PREFIXED if name.endswith("...") else PatternType.LITERAL
    return Acl(kind, name.removesuffix("..."), pattern, principal, "*", operation, Permission[permission.upper()])


def allow(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return acl("allow", operation, kind, name)


def access_of(acls: Iterable[Acl], mode: Mode = Mode.ENFORCE, super_users: Iterable[str] = ()) -> Access:
    return Access.of(Authorization(mode, Policy(acls, super_users), 1), BOB, "127.0.0.1")


@dataclass
class Asked:
    """One request of bob's, and how it went on."""

    answer: Any = None
    went_on: list[Struct] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def refused(self) -> set[tuple[str, str, str]]:
        return {(each.operation.name, each.resource_type.name, each.resource_name) for each in self.refusals}


Reply = Callable[[Any], Struct]


def ask(
    message: Struct,
    version: int,
    access: Access,
    reply: Reply | None = None,
    world: World | None = None,
) -> Asked:
    """`reply`: the API's own answer to the part that goes on; without one, nothing may go on."""
    asked = Asked()
    key = api_key_of(message)
    handler = HANDLERS[key]

    def handle(request: Request, _: MeshView) -> Plan:
        yield from ()
        asked.went_on.append(request.decode(type(message)))
        assert reply is not None, f"the request went on: {asked.went_on[-1]}"
        return reply(asked.went_on[-1])

    frame = memoryview(bytearray(encode_request(message, version, 7, "test")))
    request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
    view = (world or World({"c1": NAMES})).view()
    plan = guarded(_with(handler, handle), request, view, access, asked.refusals.append)
    try:
        command = plan.send(None)
    except StopIteration as stop:
        asked.answer = stop.value
    else:
        raise AssertionError(f"the plan asks a cluster: {command}")
    if isinstance(asked.answer, Struct):
        encode_response(asked.answer, version, 7)  # it can be told in the client's version
    return asked


def _with(handler: Handler, handle: Callable[[Request, MeshView], Plan]) -> Handler:
    older = None if handler.older is None else replace(handler.older, handle=handle)
    return replace(handler, handle=handle, older=older, counts_itself=True)


def topic_id(name: str) -> bytes:
    return mesh_topic_id("mesh-id", name)


def request_of(key: int) -> type[Struct]:
    spec = message_of(key, Kind.REQUEST)
    assert spec is not None
    return spec.cls


def response_of(key: int) -> type[Struct]:
    spec = message_of(key, Kind.RESPONSE)
    assert spec is not None
    return spec.cls


def sample(cls: type[Struct], version: int, **given: Any) -> Any:
    """A message in which everything is named apples, each list has one item, and each number its default."""
    values: dict[str, Any] = {}
    for name, spec, default in fields_of(cls):
        if not spec.present(version):
            continue
        one: Any
        if spec.struct is not None:
            one = sample(spec.struct, version)
        elif spec.kind is Type.STRING:
            one = "apples"
        elif spec.kind is Type.BYTES:
            one = b""
        elif spec.kind is Type.UUID:
            one = topic_id("apples")
        elif spec.repeated:
            one = 0
        else:
            one = default()
        values[name] = [one] if spec.repeated else one
    return cls(**{**values, **given})
