"""The caller as its certificate names it: `spiffe://MESH/ROLE/NAME` among the certificate's URIs.

ROLE is viewer, operator or admin for a person or a program, and router, gateway, sidecar or pipeline for a member. The
authority that signs the certificate decides about both. At control, grants decide about people and programs
(docs/how-to/roles.md). A caller without TLS has no principal, and is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from mesh.rpc import access
from mesh.rpc.errors import RpcError, denied
from mesh.rpc.method_access import access_of
from mesh.rpc.roles import PEOPLE, ROLES, SPIFFE_ID, role_word, suffices

RESERVED = re.compile(r"control|group:.*")
"""Names that no person has: control is the actor of its own decisions, and a grant to a group is to such a name."""
WORKER = re.compile(r"-\d+$")
"""A worker of a gateway is called by the gateway's name and a number."""
PIPELINE_AS_RECEIVER = (access.ROLE_PIPELINE, "sidecar")
"""Orders name their receivers: a sidecar by its name, a pipeline as pipelines/{pipeline}."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller that has proved who it is."""

    role: access.Role.ValueType
    """Unspecified for a caller with a token."""
    name: str
    groups: tuple[str, ...] = ()
    """Only a token names groups."""
    expires_at: float = inf
    """The wall clock time from which the proof does not count, in seconds since 1970."""
    is_automation: bool = False
    """A program: its token says that no person takes part."""

    @classmethod
    def with_token(
        cls, name: str, groups: tuple[str, ...], expires_at: float, *, is_automation: bool = False
    ) -> Principal:
        """A person or program with a token."""
        return cls(access.ROLE_UNSPECIFIED, name, groups, expires_at, is_automation)

    @property
    def is_member(self) -> bool:
        return self.role not in (*PEOPLE, access.ROLE_UNSPECIFIED)

    @property
    def actor(self) -> str:
        """The name in the history: that of a person alone, because grants decide the person's role."""
        return str(self) if self.is_member else self.name

    def __str__(self) -> str:
        return f"{role_word(self.role)} {self.name}"

    def admit(self, method: str) -> None:
        """RpcError if the principal may not call the method, named as gRPC names it."""
        access_to = access_of(method)
        if suffices(self.role, access_to):
            return
        needed = " or ".join(role_word(role) for role in access_to.roles)
        raise denied(f"{method.removeprefix('/')} is for the role {needed}; the certificate is of {self}")

    def admit_message(self, message: Message) -> None:
        """RpcError if a member names another member as the caller (`names_caller` in the protos)."""
        if not self.is_member:
            return
        for field in _fields_of_callers(message.DESCRIPTOR):
            named = _named(getattr(message, field))
            own = f"pipelines/{self.name}" if (self.role, field) == PIPELINE_AS_RECEIVER else self.name
            if named and named != own and WORKER.sub("", named) != own:
                raise denied(f"{field} names {named}; the certificate is of {self}, which speaks for itself alone")


def principal_of(context: Any) -> Principal | None:
    """The caller of a gRPC context; None without TLS. RpcError if the certificate names no caller."""
    proofs: Mapping[str, Iterable[bytes]] = context.auth_context() or {}
    if b"ssl" not in proofs.get("transport_security_type", ()):
        return None
    names = [name.decode(errors="replace") for name in proofs.get("x509_subject_alternative_name", ())]
    for name in names:
        found = SPIFFE_ID.fullmatch(name)
        if found and found["role"] in ROLES:
            principal = Principal(ROLES[found["role"]], found["name"])
            if principal.is_member or not RESERVED.fullmatch(principal.name):
                return principal
    raise RpcError(
        grpc.StatusCode.UNAUTHENTICATED,
        f"the certificate names no caller: expected spiffe://MESH/ROLE/NAME among its URIs, with a role of "
        f"{', '.join(ROLES)}; the certificate names {', '.join(names) or 'nobody'}; a bearer token does instead, if "
        "control takes tokens of its issuer",
    )


@cache
def _fields_of_callers(kind: Descriptor) -> tuple[str, ...]:
    return tuple(field.name for field in kind.fields if field.GetOptions().Extensions[access.names_caller])


def _named(value: Any) -> str:
    """The member's name in a field: a text, a Hello, a Member or a ConsumerInstance."""
    if isinstance(value, str):
        return value.removeprefix("members/")
    holder = getattr(value, "member", value)
    return str(getattr(holder, "sidecar", "") or holder.name).removeprefix("members/")
