"""The mesh's policy for names of new topics: asked before a cluster creates a topic for a client."""

from mesh.validation.new_topics import name_breach
from services.gateway.requests.auditing.invalid import InvalidTopic
from services.gateway.requests.plan import MeshView


def why_refused(name: str, mesh: MeshView) -> str | None:
    """The reason for which this client may not create a topic of this name; reports each rule that is broken."""
    session = mesh.session
    for rule in mesh.memory.new_topics.rules_for(name):
        breach = name_breach(rule, name, (session.principal, *session.proved.group_principals))
        if breach is None:
            continue
        told = InvalidTopic(session.principal, session.address, session.client_id or "", name, breach)
        mesh.memory.on_invalid_topic(told)
        if told.enforced:
            return breach.reason
    return None
