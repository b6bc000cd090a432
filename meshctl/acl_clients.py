"""The connected clients against a policy: what each would be refused that it does now. No I/O.

The inventory of clients has principals, addresses, topics, groups and transactional ids. It has no groups of principals
and no operations on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mesh.acls.acl import Operation, ResourceType
from mesh.acls.policy import Policy
from mesh.acls.subjects import Subject, plain_host
from mesh.rpc import clients
from meshctl.acl_traffic import principal_of


@dataclass(frozen=True, slots=True)
class Need:
    """A right that a client uses."""

    operation: Operation
    kind: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A client that would lose a right that it uses, and why."""

    client: clients.Client
    need: Need
    reason: str
    was_allowed: bool
    """By the policy as it is now, if that were enforced."""


def needs(of: clients.Client) -> Iterator[Need]:
    """The rights that a client uses, as far as the inventory tells."""
    used = (
        (Operation.WRITE, ResourceType.TOPIC, of.produces_to),
        (Operation.READ, ResourceType.TOPIC, of.consumes_from),
        (Operation.READ, ResourceType.GROUP, of.groups),
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, of.transactional_ids),
    )
    for operation, kind, names in used:
        for name in names:
            yield Need(operation, kind, name)


def broken_by(found: Iterable[clients.Client], now: Policy, then: Policy) -> Iterator[Broken]:
    """`now`: the policy that is; `then`: the policy after the change. Both as if they were enforced."""
    for each in found:
        subject = Subject((principal_of(each.principal),), plain_host(each.address))
        for need in needs(each):
            decision = then.decide(subject, need.operation, need.kind, need.name)
            if not decision.allowed:
                before = now.decide(subject, need.operation, need.kind, need.name)
                yield Broken(each, need, decision.reason, before.allowed)


COLUMNS = ("CLIENT ID", "PRINCIPAL", "FROM", "GATEWAY", "OPERATION", "ON", "NAME", "BECAUSE")


def row(of: Broken) -> tuple[str, ...]:
    client, need = of.client, of.need
    return (
        client.client_id or "-", principal_of(client.principal), client.address or "-", client.gateway,
        need.operation.word, need.kind.word, need.name, of.reason,
    )  # fmt: skip


def document(of: Broken) -> dict[str, Any]:
    """For programs."""
    client, need = of.client, of.need
    return {
        "client_id": client.client_id, "principal": principal_of(client.principal), "address": client.address,
        "gateway": client.gateway, "software": client.software, "operation": need.operation.word,
        "resource_type": need.kind.word, "resource": need.name, "reason": of.reason, "was_allowed": of.was_allowed,
    }  # fmt: skip


def limits(*, addresses_hidden: bool, left_out: int) -> Iterator[str]:
    """Sentences about what is not known."""
    if addresses_hidden:
        yield "The addresses of clients are hidden from you: an ACL for one address counted as if no client were meant."
    if left_out:
        yield f"Gateways leave out {left_out:,} kinds of clients, which were not judged."
    yield "Groups of principals and operations on the cluster are not in the inventory of clients."
