"""Records that a rule of protection keeps from a client or a cluster, as metrics, the log and the audit tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.gateway.requests.plan import MeshView


@dataclass(frozen=True, slots=True)
class Withheld:
    """See above."""

    principal: str
    host: str
    client_id: str
    topic: str
    partition: int
    rule_id: str
    reason: str
    """Without any secret and any value."""
    is_write: bool
    for_now: bool
    """Whether the client may try again."""

    @property
    def enforced(self) -> bool:
        return True

    def __str__(self) -> str:
        client = f"{self.principal} (client.id {self.client_id!r}) from host {self.host}"
        verb = "write" if self.is_write else "read"
        return f"{client} can't {verb} records of the topic, because {self.reason} (rule {self.rule_id!r} of the mesh)"


def tell_withheld(
    mesh: MeshView,
    topic: str,
    partition: int,
    rule_id: str,
    reason: str,
    *,
    is_write: bool = False,
    for_now: bool,
) -> None:
    """Reports what is kept from the client of the request."""
    session = mesh.session
    client = (session.principal, session.address, session.client_id or "")
    mesh.memory.on_withheld(Withheld(*client, topic, partition, rule_id, reason, is_write, for_now))
