"""Checks of one rule, whatever the other rules are: its id, a match that can match, its target, names that fit.

`mesh.routing` checks a rule's own fields where it makes the rule; this module checks what depends on the rule's kind.
"""

from __future__ import annotations

import re

from mesh.routing import (
    MAX_NAME,
    ClientMatch,
    ExactName,
    ForwardingRule,
    NamePrefix,
    NodeView,
    RoutingTable,
    Subject,
    field_of,
)
from mesh.topics import is_own_topic, is_topic_name
from services.control.domain.errors import InvalidField, NotAllowed

RULE_ID = re.compile(r"[a-z0-9-]{1,63}")
TOPIC_CHARACTERS = re.compile(r"[a-zA-Z0-9._-]*")
INTERNAL_PREFIX = "__"
"""Kafka's own topics (__consumer_offsets, __transaction_state, ...) belong to their cluster and never move."""
MAX_MATCH_BYTES = 2000
"""Bytes of a match's text and of its conditions for clients: PostgreSQL indexes both, and takes at most 2,704 there."""
PRINCIPAL = re.compile(r"[A-Za-z]+:.+", re.DOTALL)


def check_rule(rule: ForwardingRule, table: RoutingTable) -> None:
    """InvalidField or NotAllowed when the rule is wrong."""
    if not RULE_ID.fullmatch(rule.rule_id):
        raise InvalidField("rule.rule_id", f"{rule.rule_id!r} is not 1 to 63 characters of a-z, 0-9 and '-'")
    _check_match(rule)
    _check_target(rule, table)
    _check_upstream_names(rule)


def _check_match(rule: ForwardingRule) -> None:
    field, text = f"rule.{field_of(rule.match)}", rule.match.text
    if "\0" in text:
        raise InvalidField(field, f"{text!r} has a character NUL, which the log can't hold; match it by a prefix")
    if len(text.encode()) > MAX_MATCH_BYTES:
        raise InvalidField(field, f"has more than {MAX_MATCH_BYTES} bytes; match a prefix, or make it several rules")
    if rule.match.client is not None:
        _check_client(rule.match.client, len(text.encode()))
    if rule.match.subject is not Subject.TOPIC:
        return
    match rule.match:
        case ExactName(name) if not is_topic_name(name):
            raise InvalidField(field, f"{name!r} is no topic name: Kafka knows a-z, A-Z, 0-9, '.', '_' and '-'")
        case ExactName(name) | NamePrefix(name) if is_own_topic(name):
            raise InvalidField(
                field, f"topics that begin with {name!r} are the mesh's own and not for clients; match other ones"
            )
        case NamePrefix(prefix) if not TOPIC_CHARACTERS.fullmatch(prefix):
            raise InvalidField(field, f"no topic begins with {prefix!r}: Kafka knows a-z, A-Z, 0-9, '.', '_' and '-'")
        case _:
            pass


def _check_client(client: ClientMatch, taken_bytes: int) -> None:
    said = (client.principal, client.client_id, client.client_id_prefix, client.software_name, *client.source_networks)
    if any("\0" in text for text in said):
        raise InvalidField("rule.match.client", f"{client} has a character NUL, which the log can't hold")
    if client.principal and not PRINCIPAL.fullmatch(client.principal):
        raise InvalidField(
            "rule.match.client.principal",
            f"{client.principal!r} is no principal; expected a kind and a name, like 'User:alice'",
        )
    if taken_bytes + sum(len(text.encode()) for text in said) > MAX_MATCH_BYTES:
        raise InvalidField(
            "rule.match.client",
            f"the match has more than {MAX_MATCH_BYTES} bytes with what it asks of clients; say it by wider networks "
            "or a prefix, or make it several rules",
        )


def _check_target(rule: ForwardingRule, table: RoutingTable) -> None:
    known = ", ".join(table.clusters) or "none; register one first"
    if rule.match.subject is Subject.CLIENT_SOFTWARE:
        if rule.target_cluster:
            raise InvalidField(
                "rule.target_cluster",
                f"is {rule.target_cluster!r}, but a rule about client software has none; leave it empty",
            )
        if rule.node_view is NodeView.BY_SOFTWARE:
            raise InvalidField(
                "rule.node_view", "is not said; a rule about client software says NODE_VIEW_SINGLE or _PER_CLUSTER"
            )
    elif not rule.target_cluster:
        raise InvalidField("rule.target_cluster", f"is missing; name a cluster (known: {known})")
    elif rule.target_cluster not in table.clusters:
        raise NotAllowed(
            "CLUSTER_NOT_REGISTERED",
            f"clusters/{rule.target_cluster}",
            f"rule {rule.rule_id!r}: target cluster {rule.target_cluster!r} is not registered (known: {known})",
        )


def _check_upstream_names(rule: ForwardingRule) -> None:
    """Refuses templates that no topic of the rule can follow."""
    if rule.template is None:
        return
    shortest = rule.upstream_name(rule.match.head)
    if is_own_topic(shortest):
        raise InvalidField(
            "rule.upstream_topic",
            f"{rule.upstream_topic!r} makes names like {shortest!r}, which are the mesh's own; begin it otherwise",
        )
    if shortest.startswith(INTERNAL_PREFIX):
        raise InvalidField(
            "rule.upstream_topic",
            f"{rule.upstream_topic!r} makes names like {shortest!r}; those that begin with {INTERNAL_PREFIX!r} are the "
            "cluster's own; begin it otherwise",
        )
    if len(shortest) > MAX_NAME:
        raise InvalidField(
            "rule.upstream_topic",
            f"makes names of {len(shortest)} characters ({shortest[:60]}...), and Kafka takes at most {MAX_NAME}; "
            "make it shorter",
        )
    if isinstance(rule.match, ExactName) and not is_topic_name(shortest):
        raise InvalidField("rule.upstream_topic", f"makes {shortest!r}, which no topic can be called; choose another")
