"""The reasons for a routing decision, as sentences: each rule tried, in order, up to the rule that decides."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.routing import (
    ClientIdentity,
    ClientMatch,
    ExactName,
    ForwardingRule,
    NamePrefix,
    RoutingTable,
    Subject,
    UnmatchedTopics,
)
from mesh.topics import is_own_topic

NOBODY_KNOWN = ClientIdentity()
NOUNS = {
    Subject.TOPIC: "topic",
    Subject.GROUP: "group",
    Subject.TRANSACTIONAL_ID: "transactional id",
    Subject.CLIENT_SOFTWARE: "client software",
}


@dataclass(frozen=True, slots=True)
class Tried:
    """A rule that was tried."""

    rule: ForwardingRule
    matched: bool
    reason: str


def tried_rules(table: RoutingTable, subject: Subject, name: str, client: ClientIdentity = NOBODY_KNOWN) -> list[Tried]:
    """Rules about the subject in the order tried. The last rule matched, unless none did."""
    tried: list[Tried] = []
    for rule in table.rules:
        if rule.match.subject is not subject:
            continue
        named = rule.match.matches(name)
        stranger = _why_not_for(rule.match.client, client) if named and rule.match.client else ""
        matched = named and not stranger
        tried.append(Tried(rule, matched, stranger or _reason(rule, name, matched)))
        if matched:
            break
    return tried


def why_unrouted(table: RoutingTable, topic: str, decisive: ForwardingRule | None) -> str:
    """Why gateways answer clients that the topic does not exist; `decisive` is the rule that matches."""
    told = "clients are told that the topic does not exist"
    if decisive is None:
        return f"no rule matches: {told}"
    if is_own_topic(topic):
        return f"topics of the mesh itself are not for clients, whatever the rules say: {told}"
    if decisive.target_cluster not in table.clusters:
        return f"cluster {decisive.target_cluster!r} is not registered: {told}"
    upstream_topic = decisive.upstream_name(topic)
    name = table.virtual_topic(decisive.target_cluster, upstream_topic)
    if name is not None:
        return f"topic {upstream_topic!r} of {decisive.target_cluster!r} is known to clients as {name!r}: {told}"
    return f"{upstream_topic!r} is no name that a topic of {decisive.target_cluster!r} can have: {told}"


def without_rule(table: RoutingTable, subject: Subject) -> str:
    """The default for a group, a transactional id or a client that no rule matches."""
    home = (
        "the home cluster of the mesh" if table.home is None else f"the home cluster of the mesh, {table.home.name!r}"
    )
    match subject:
        case Subject.GROUP:
            where = f"where it lives already, else where all of its topics live, else {home}"
            return f"no rule matches: the group is coordinated {where}"
        case Subject.TRANSACTIONAL_ID:
            return f"no rule matches: transactions are coordinated by {home}"
        case _:
            return "no rule matches: the gateway shows the nodes that it knows this software to get on with"


def _why_not_for(wanted: ClientMatch, client: ClientIdentity) -> str:
    """The first condition of a rule that this client does not fulfil; empty if it fulfils them all."""
    if wanted.holds_for(client):
        return ""
    networks = ClientMatch(source_networks=wanted.source_networks) if wanted.source_networks else None
    for fulfilled, clients, one in (
        (wanted.principal in ("", client.principal), f"of {wanted.principal}", f"is {client.principal}"),
        (
            wanted.client_id in ("", client.client_id),
            f"of client id {wanted.client_id!r}",
            _has("client id", client.client_id),
        ),
        (
            client.client_id.startswith(wanted.client_id_prefix),
            f"whose client id begins with {wanted.client_id_prefix!r}",
            _has("client id", client.client_id),
        ),
        (
            wanted.software_name in ("", client.software_name),
            f"of software {wanted.software_name!r}",
            _has("software", client.software_name),
        ),
        (
            networks is None or networks.holds_for(client),
            f"from {' or '.join(wanted.source_networks)}",
            f"comes from {client.address}" if client.address else "comes from an address that was not said",
        ),
    ):
        if not fulfilled:
            return f"is only for clients {clients}; this one {one}"
    raise AssertionError("a condition that does not hold has a part that does not")


def _has(what: str, value: str) -> str:
    return f"has {what} {value!r}" if value else f"has no {what} that was said"


def _reason(rule: ForwardingRule, name: str, matched: bool) -> str:
    noun = NOUNS[rule.match.subject]
    match rule.match:
        case ExactName(text):
            return f"the {noun} is {text!r}" if matched else f"the {noun} is not {text!r}"
        case NamePrefix(prefix):
            return f"the {noun} begins with {prefix!r}" if matched else f"the {noun} does not begin with {prefix!r}"
        case UnmatchedTopics():
            return "no other rule matches the topic"
        case regex:
            return f"the whole name matches {regex.text!r}" if matched else f"the name does not match {regex.text!r}"
