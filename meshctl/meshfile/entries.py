"""Clusters and rules as both kinds of file write them, checked against what the mesh takes."""

from __future__ import annotations

import re
from collections.abc import Iterable

import re2

from mesh.rpc import routing
from meshctl.endpoints import EndpointsError, split_address
from meshctl.meshfile import properties
from meshctl.meshfile.model import ClusterEntry, Findings, RuleEntry
from meshctl.meshfile.section import Section, Value

CLUSTER_KEYS = ("cluster_name", "bootstrap_servers", "partition_count", "producer_config", "consumer_config")
MATCH_KEYS = ("topic", "topic_prefix", "topic_regex")
MOST_PARTITIONS = 1_000_000
EVERY_TOPIC = ".*"
_CLUSTER_NAME = re.compile(r"[a-zA-Z0-9._-]{1,63}")
_RULE_ID = re.compile(r"[a-z0-9-]{1,63}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def cluster(section: Section, findings: Findings) -> ClusterEntry | None:
    """One cluster; None when it is too broken to go on with."""
    name = section.value("cluster_name", required=True)
    if name is not None and not _CLUSTER_NAME.fullmatch(name.text):
        section.error("cluster_name", f"{name.text!r}: a name has 1 to 63 of the characters a-z A-Z 0-9 . _ -")
    spec = routing.ClusterSpec(
        cluster_name=name.text if name else "",
        bootstrap_servers=_bootstrap(section, findings),
        partition_count=section.integer("partition_count", lowest=1, highest=MOST_PARTITIONS) or 0,
        producer_config=properties.read(section, "producer_config", findings),
        consumer_config=properties.read(section, "consumer_config", findings),
    )
    if name is None:
        return None
    properties.notice_what_does_not_touch_traffic(spec, section, findings)
    return ClusterEntry(spec, section.line)


def bootstrap_error(address: str) -> str | None:
    """What is wrong with one bootstrap address, and what would be right."""
    try:
        split_address(address)
    except EndpointsError:
        suggestion = f" (for example {address}:9092)" if address and ":" not in address else ""
        return f"{address!r}: expected host:port{suggestion}"
    return None


def _bootstrap(section: Section, findings: Findings) -> list[str]:
    if "bootstrap_servers" not in section:
        section.value("bootstrap_servers", required=True)
        return []
    values = section.addresses("bootstrap_servers")
    for each in values:
        if error := bootstrap_error(each.text):
            findings.error(each.line, each.place, error)
    if not values:
        section.error("bootstrap_servers", "expected at least one host:port")
    return [each.text for each in values]


def rule(section: Section, findings: Findings, match_keys: tuple[str, ...] = MATCH_KEYS) -> RuleEntry | None:
    """One rule; None when it is too broken to go on with."""
    target = section.value("target_cluster", required=True)
    given = {key: value for key in match_keys if (value := section.value(key)) is not None}
    if len(given) != 1:
        expected = match_keys[0] if len(match_keys) == 1 else f"exactly one of {', '.join(match_keys)}"
        found = f", found {', '.join(given)}" if given else ""
        findings.error(section.line, section.place, f"which topics? Expected {expected}{found}")
        return None
    rule_id = section.value("rule_id") if match_keys == MATCH_KEYS else None
    if rule_id is not None and not _RULE_ID.fullmatch(rule_id.text):
        section.error("rule_id", f"{rule_id.text!r}: an id has 1 to 63 of the characters a-z 0-9 -")
    ((key, value),) = given.items()
    match = _match(section, key, value, findings)
    if target is None or match is None:
        return None
    spec = routing.RuleSpec(rule_id=rule_id.text if rule_id else "", match=match, target_cluster=target.text)
    return RuleEntry(spec, section.line, section.place)


def _match(section: Section, key: str, value: Value, findings: Findings) -> routing.RuleMatch | None:
    if key == "topic_regex":
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(value.text, options)
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
            section.error(key, f"{value.text!r} is not an RE2 expression: {reason}")
            return None
        return routing.RuleMatch(topic_regex=value.text)
    if key == "topic_prefix" and not value.text:
        findings.notice(
            value.line, value.place, f"an empty prefix means every topic; kept as topic_regex {EVERY_TOPIC!r}"
        )
        return routing.RuleMatch(topic_regex=EVERY_TOPIC)
    if not _TOPIC.fullmatch(value.text):
        section.error(key, f"{value.text!r}: topic names have 1 to 249 of the characters a-z A-Z 0-9 . _ -")
        return None
    return routing.RuleMatch(topic=value.text) if key == "topic" else routing.RuleMatch(topic_prefix=value.text)


def refuse_duplicates(clusters: Iterable[ClusterEntry], rules: Iterable[RuleEntry], findings: Findings) -> None:
    """A cluster, a match and a rule id can be there once."""
    seen: dict[str, int] = {}
    for each in clusters:
        name = each.spec.cluster_name
        if name in seen:
            findings.error(each.line, name, f"this cluster is already at line {seen[name]}; keep one")
        seen.setdefault(name, each.line)
    matches: dict[tuple[str, str], int] = {}
    ids: dict[str, int] = {}
    for entry in rules:
        kind = entry.spec.match.WhichOneof("kind") or ""
        key = (kind, getattr(entry.spec.match, kind))
        if key in matches:
            findings.error(entry.line, entry.place, f"{kind} {key[1]!r} is already at line {matches[key]}; keep one")
        matches.setdefault(key, entry.line)
        if entry.spec.rule_id and entry.spec.rule_id in ids:
            where = ids[entry.spec.rule_id]
            findings.error(
                entry.line, entry.place, f"rule_id {entry.spec.rule_id} is already at line {where}; keep one"
            )
        ids.setdefault(entry.spec.rule_id, entry.line)
