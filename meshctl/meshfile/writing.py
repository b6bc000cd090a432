"""From a mesh to a file: mesh.yaml that, applied to the mesh it came from, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from mesh.rpc import acls, admin, routing, tenants
from mesh.rpc import record_rules as records
from meshctl.meshfile import acls as acl_entries
from meshctl.meshfile import record_rules
from meshctl.meshfile import tenants as tenant_entries
from meshctl.meshfile.rules import NODE_VIEWS

_VIEWS = {view: name for name, view in NODE_VIEWS.items()}


def document(
    clusters: Iterable[admin.Cluster],
    rules: Iterable[admin.Rule],
    of_records: Iterable[records.RecordRule],
    policy: acls.AclPolicy,
    of_tenants: Iterable[tenants.Tenant],
) -> dict[str, Any]:
    """All sections, also empty ones: with --prune a file speaks of all that it has a section for."""
    return {
        "clusters": [_cluster(each.spec) for each in clusters],
        "rules": [_rule(each.spec) for each in rules],
        "record_rules": [record_rules.written(each.spec) for each in of_records],
        acl_entries.KEY: acl_entries.written(policy.acls),
        acl_entries.POLICY_KEY: acl_entries.written_policy(policy),
        tenant_entries.KEY: tenant_entries.written(of_tenants),
    }


def text(of: dict[str, Any]) -> str:
    dumped: str = yaml.safe_dump(of, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120)
    return dumped


def _cluster(spec: routing.ClusterSpec) -> dict[str, Any]:
    said = {
        "cluster_name": spec.cluster_name,
        "bootstrap_servers": list(spec.bootstrap_servers),
        "partition_count": spec.partition_count,
        "producer_config": dict(sorted(spec.producer_config.items())),
        "consumer_config": dict(sorted(spec.consumer_config.items())),
    }
    return {key: value for key, value in said.items() if value}


def _rule(spec: routing.RuleSpec) -> dict[str, Any]:
    kind = spec.match.WhichOneof("kind") or ""
    said = {
        "rule_id": spec.rule_id,
        kind: getattr(spec.match, kind),
        "client": _client(spec.match.client),
        "target_cluster": spec.target_cluster,
        "upstream_topic": spec.upstream_topic,
        "shadow_topics": spec.shadow_topics,
        "span_clusters": spec.span_clusters,
        "node_view": _VIEWS.get(spec.node_view, ""),
    }
    return {key: value for key, value in said.items() if value}


def _client(match: routing.ClientMatch) -> dict[str, Any]:
    said = {
        "principal": match.principal,
        "client_id": match.client_id,
        "client_id_prefix": match.client_id_prefix,
        "software_name": match.software_name,
        "source_networks": list(match.source_networks),
    }
    return {key: value for key, value in said.items() if value}
