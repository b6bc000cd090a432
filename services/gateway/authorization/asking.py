"""One request of a client under a policy: what it needs, and how the part that is allowed goes on.

A guard is a plan around the plan of the API. The guard reads the request, leaves out what the client may not do, lets
the API's own plan answer the rest, and adds the errors for what was left out. A policy that only observes leaves out
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mesh.acls import Operation, ResourceType
from mesh.acls.acl import CLUSTER_NAME
from services.gateway.authorization.access import Access
from services.gateway.authorization.refusals import Refusal, Report
from services.gateway.requests.handler import Handler
from services.gateway.requests.older.rewriting import message_of_answer, rewritten
from services.gateway.requests.plan import Close, Command, MeshView, NoAnswer, Plan, Request
from services.gateway.requests.topic_ids import topic_names
from services.gateway.wire.schema import Struct

M = TypeVar("M", bound=Struct)


@dataclass(slots=True)
class Asking:
    """See above."""

    handler: Handler
    request: Request
    mesh: MeshView
    access: Access
    report: Report
    _reported: set[tuple[Operation, ResourceType, str]] = field(default_factory=set)
    """A request that names a resource for several partitions is refused once."""

    @property
    def enforces(self) -> bool:
        return self.access.enforces

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this. A refusal is reported; where the policy only observes, it is no more."""
        if not self.access.allows(operation, resource_type, name):
            return self.refused(operation, resource_type, name)
        if self.access.observes(operation, resource_type, name):
            self._report(operation, resource_type, name, enforced=False)
        return True

    def shows(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client sees this in a list. A hidden item of a list is no refusal."""
        return not self.enforces or self.access.allows(operation, resource_type, name)

    def refused(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Reports a refusal. True: the request goes on all the same."""
        self._report(operation, resource_type, name, enforced=self.enforces)
        return not self.enforces

    def _report(self, operation: Operation, resource_type: ResourceType, name: str, *, enforced: bool) -> None:
        key = (operation, resource_type, name)
        if key in self._reported:
            return
        self._reported.add(key)
        self.report(
            Refusal(
                str(self.access.subject),
                self.access.subject.host,
                *key,
                self.access.decide(*key),
                self.request.api_key,
                enforced,
                self.access.bound(*key),
            )
        )

    def pass_on(self) -> Plan:
        """The whole request goes on."""
        return self.handler.plan(self.request, self.mesh)

    def go_on(self, message: Struct, cls: type[M], *, least: int = 0) -> Generator[Command, Any, M | NoAnswer | Close]:
        """The allowed part of the request goes on, in its version or `least`; its answer as a message."""
        version = max(self.request.version, least)
        answer = yield from self.handler.plan(rewritten(self.request, message, version), self.mesh)
        return message_of_answer(answer, cls, version)

    def answer(self, cls: type[M]) -> Generator[Command, Any, M | NoAnswer | Close]:
        """The whole request goes on; its answer as a message."""
        answer = yield from self.pass_on()
        return message_of_answer(answer, cls, self.request.version)

    def names(self, ids: Iterable[bytes]) -> Generator[Command, Any, dict[bytes, str]]:
        """The topics of these ids, as far as a cluster knows them. A tenant hears nothing of those of others."""
        names = yield from topic_names(self.mesh, ids)
        if self.access.tenant is None:
            return names
        return {each: name for each, name in names.items() if self._is_within(name)}

    def _is_within(self, name: str) -> bool:
        return not self.access.bound(Operation.DESCRIBE, ResourceType.TOPIC, name)


Guard = Callable[[Asking], Plan]
