"""The access to a method of the mesh, as `proto/mesh/v1` states it beside the method."""

from __future__ import annotations

from functools import cache

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from mesh.rpc import access

PACKAGE = "/mesh.v1."
"""The beginning of the methods that have such a statement; health and reflection have none."""


@cache
def access_of(method: str) -> access.Access:
    """The statement about a method, named as gRPC names it: `/mesh.v1.RuleService/SetRule`. KeyError if the contract
    has no such method, or its module is not imported."""
    found: MethodDescriptor = descriptor_pool.Default().FindMethodByName(method.removeprefix("/").replace("/", "."))
    return found.GetOptions().Extensions[access.access]


def decides(method: str) -> bool:
    """Whether a call of the method wants to decide something. A method without a statement counts as one that does."""
    return access_of(method).effect not in (access.EFFECT_READS, access.EFFECT_REPORTS)
