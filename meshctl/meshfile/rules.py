"""Rules as files write them: one match, a target, and the other fields of the rule's kind."""

from __future__ import annotations

import re
from typing import Any

import re2

from mesh.rpc import routing
from meshctl.clients import client_match, network_error
from meshctl.meshfile.model import Findings, RuleEntry
from meshctl.meshfile.section import Section, Value, did_you_mean

SUBJECTS = ("topic", "group", "transactional_id", "client_software")
MATCH_KEYS = tuple(f"{subject}{kind}" for subject in SUBJECTS for kind in ("", "_prefix", "_regex"))
UNMATCHED = "unmatched_topics"
"""Match of the default cluster: every topic that no other rule matches."""
CLIENT_KEYS = ("principal", "client_id", "client_id_prefix", "software_name", "source_networks")
ONLY_ABOUT = {
    "upstream_topic": "topic",
    "shadow_topics": "group",
    "span_clusters": "transactional_id",
    "node_view": "client_software",
}
"""Keys that rules about one subject have, and others have not."""
NODE_VIEWS = {"single": routing.NODE_VIEW_SINGLE, "per_cluster": routing.NODE_VIEW_PER_CLUSTER}
RULE_KEYS = (*MATCH_KEYS, UNMATCHED, "client", "target_cluster", *ONLY_ABOUT, "rule_id")
EVERYTHING = ".*"
RULE_ID = re.compile(r"[a-z0-9-]{1,63}")
TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def rule(section: Section, findings: Findings, match_keys: tuple[str, ...] = MATCH_KEYS) -> RuleEntry | None:
    """One rule; None when it is too broken to go on with."""
    own = match_keys == MATCH_KEYS
    given = {key: value for key in match_keys if (value := section.value(key)) is not None}
    if own and section.boolean(UNMATCHED) and (value := section.value(UNMATCHED)) is not None:
        given[UNMATCHED] = value
    subject = subject_of(next(iter(given), "topic"))
    target = section.value("target_cluster", required=subject != "client_software")
    if len(given) != 1:
        expected = match_keys[0] if len(match_keys) == 1 else f"exactly one of {', '.join(match_keys)}"
        found = f", found {', '.join(given)}" if given else ""
        what = "topics" if len(match_keys) == 1 else "topics, groups, ids or clients"
        findings.error(section.line, section.place, f"which {what}? Expected {expected}{found}")
        return None
    fields = _fields(section, subject) if own else {}
    rule_id = section.value("rule_id") if own else None
    client = _client(section, findings) if own else None
    if rule_id is not None and not RULE_ID.fullmatch(rule_id.text):
        section.error("rule_id", f"{rule_id.text!r}: an id has 1 to 63 of the characters a-z 0-9 -")
    if subject == "client_software" and target is not None:
        section.error("target_cluster", "a rule about client software has none; leave it out")
    ((key, value),) = given.items()
    match = _match(section, key, value, findings)
    if match is None or (target is None and subject != "client_software"):
        return None
    if client is not None:
        match.client.CopyFrom(client)
    spec = routing.RuleSpec(
        rule_id=rule_id.text if rule_id else "", match=match, target_cluster=target.text if target else "", **fields
    )
    return RuleEntry(spec, section.line, section.place)


def subject_of(key: str) -> str:
    return "topic" if key == UNMATCHED else key.removesuffix("_prefix").removesuffix("_regex")


def _client(section: Section, findings: Findings) -> routing.ClientMatch | None:
    """Which clients the rule is about, as control writes it; None: all."""
    found = section.section("client")
    if found is None:
        return None
    said = {key: value.text for key in CLIENT_KEYS[:-1] if (value := found.value(key)) is not None}
    networks: list[str] = []
    for value in found.addresses("source_networks") if "source_networks" in found else ():
        if error := network_error(value.text):
            findings.error(value.line, value.place, error)
        else:
            networks.append(value.text)
    found.refuse_unknown_keys(CLIENT_KEYS)
    client = client_match(**said, source_networks=networks)
    if client is None:
        section.error("client", f"says nothing; give at least one of {', '.join(CLIENT_KEYS)}, or leave it out")
    return client


def _fields(section: Section, subject: str) -> dict[str, Any]:
    """The rule's fields other than match and target, by the names of RuleSpec."""
    for key, about in ONLY_ABOUT.items():
        if key in section and about != subject:
            section.value(key)  # asked for, so that it is not named as unknown, too
            section.error(key, f"only rules about a {about} have it; this one is about a {subject}")
    fields: dict[str, Any] = {}
    if subject == "topic" and (upstream_topic := section.value("upstream_topic")) is not None:
        fields["upstream_topic"] = upstream_topic.text
    if subject == "group":
        fields["shadow_topics"] = section.boolean("shadow_topics")
    if subject == "transactional_id":
        fields["span_clusters"] = section.boolean("span_clusters")
    if subject == "client_software" and (view := section.value("node_view", required=True)) is not None:
        if view.text in NODE_VIEWS:
            fields["node_view"] = NODE_VIEWS[view.text]
        else:
            known = " or ".join(NODE_VIEWS)
            section.error("node_view", f"{view.text!r}: expected {known}{did_you_mean(view.text, NODE_VIEWS)}")
    return fields


def _match(section: Section, key: str, value: Value, findings: Findings) -> routing.RuleMatch | None:
    subject = subject_of(key)
    if key == UNMATCHED:
        return routing.RuleMatch(unmatched_topics=True)
    if key.endswith("_regex"):
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(value.text, options)
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
            section.error(key, f"{value.text!r} is not an RE2 expression: {reason}")
            return None
    elif key.endswith("_prefix") and not value.text:
        findings.notice(
            value.line, value.place, f"an empty prefix means every {subject}; kept as {subject}_regex {EVERYTHING!r}"
        )
        return _matching(f"{subject}_regex", EVERYTHING)
    elif subject == "topic" and not TOPIC.fullmatch(value.text):
        section.error(key, f"{value.text!r}: topic names have 1 to 249 of the characters a-z A-Z 0-9 . _ -")
        return None
    elif not value.text:
        section.error(key, "is empty; expected at least one character")
        return None
    return _matching(key, value.text)


def _matching(field: str, text: str) -> routing.RuleMatch:
    match = routing.RuleMatch()
    setattr(match, field, text)
    return match
