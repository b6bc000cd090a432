"""Clusters as both kinds of file write them, checked against what the mesh takes; and what can be there only once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mesh.rpc import routing
from meshctl.endpoints import EndpointsError, split_address
from meshctl.meshfile import properties
from meshctl.meshfile.model import ClusterEntry, Findings, RuleEntry
from meshctl.meshfile.section import Section

CLUSTER_KEYS = ("cluster_name", "bootstrap_servers", "partition_count", "producer_config", "consumer_config")
MOST_PARTITIONS = 1_000_000
CLUSTER_NAME = re.compile(r"[a-zA-Z0-9._-]{1,63}")


def cluster(section: Section, findings: Findings) -> ClusterEntry | None:
    """One cluster; None when it is too broken to go on with."""
    name = section.value("cluster_name", required=True)
    if name is not None and not CLUSTER_NAME.fullmatch(name.text):
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
    """The error in one bootstrap address, and the right form."""
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


def refuse_duplicates(clusters: Iterable[ClusterEntry], rules: Iterable[RuleEntry], findings: Findings) -> None:
    """A cluster, a match and a rule id can be there once."""
    seen: dict[str, int] = {}
    for each in clusters:
        name = each.spec.cluster_name
        if name in seen:
            findings.error(each.line, name, f"this cluster is already at line {seen[name]}; keep one")
        seen.setdefault(name, each.line)
    matches: dict[bytes, int] = {}
    ids: dict[str, int] = {}
    for entry in rules:
        kind = entry.spec.match.WhichOneof("kind") or ""
        key = entry.spec.match.SerializeToString(deterministic=True)
        if key in matches:
            text = f"{kind} {getattr(entry.spec.match, kind)!r} is already at line {matches[key]}; keep one"
            findings.error(entry.line, entry.place, text)
        matches.setdefault(key, entry.line)
        if entry.spec.rule_id and entry.spec.rule_id in ids:
            where = ids[entry.spec.rule_id]
            findings.error(
                entry.line, entry.place, f"rule_id {entry.spec.rule_id} is already at line {where}; keep one"
            )
        ids.setdefault(entry.spec.rule_id, entry.line)
