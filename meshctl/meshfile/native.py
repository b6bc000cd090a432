"""mesh.yaml, the mesh's own file: clusters, rules and record rules with the field names of the API, ACLs, tenants."""

from __future__ import annotations

from meshctl.meshfile import acls, entries, record_rules, rules, tenants
from meshctl.meshfile.model import FileKind, Findings, MeshFile
from meshctl.meshfile.section import Section

FILE_KEYS = ("clusters", "rules", "record_rules", acls.KEY, acls.POLICY_KEY, tenants.KEY)


def read(document: Section, findings: Findings) -> MeshFile:
    """The file's clusters and rules. Unknown keys are errors: they are ours, so one is a slip."""
    cluster_sections = document.sections("clusters")
    rule_sections = document.sections("rules")
    found_record_rules = record_rules.read(document, findings)
    found_acls = acls.read(document, findings)
    found_policy = acls.read_policy(document, findings)
    found_tenants = tenants.read(document, findings)
    document.refuse_unknown_keys(FILE_KEYS)
    clusters = [entry for each in cluster_sections if (entry := entries.cluster(each, findings)) is not None]
    found_rules = [found for each in rule_sections if (found := rules.rule(each, findings)) is not None]
    for each in cluster_sections:
        each.refuse_unknown_keys(entries.CLUSTER_KEYS)
    for each in rule_sections:
        each.refuse_unknown_keys(rules.RULE_KEYS)
    return MeshFile(
        FileKind.MESH,
        tuple(clusters),
        tuple(found_rules) if "rules" in document else None,
        record_rules=tuple(found_record_rules) if "record_rules" in document else None,
        acls=found_acls,
        acl_policy=found_policy,
        tenants=found_tenants,
        names_clusters="clusters" in document,
    )
