"""mesh.yaml, the mesh's own file: `clusters` and `rules`, with the field names of the API."""

from __future__ import annotations

from meshctl.meshfile import entries
from meshctl.meshfile.model import FileKind, Findings, MeshFile
from meshctl.meshfile.section import Section

FILE_KEYS = ("clusters", "rules")
RULE_KEYS = (*entries.MATCH_KEYS, "target_cluster", "rule_id")


def read(document: Section, findings: Findings) -> MeshFile:
    """The file's clusters and rules. Unknown keys are errors: they are ours, so one is a slip."""
    cluster_sections = document.sections("clusters")
    rule_sections = document.sections("rules")
    document.refuse_unknown_keys(FILE_KEYS)
    clusters = [entry for each in cluster_sections if (entry := entries.cluster(each, findings)) is not None]
    rules = [found for each in rule_sections if (found := entries.rule(each, findings)) is not None]
    for each in cluster_sections:
        each.refuse_unknown_keys(entries.CLUSTER_KEYS)
    for each in rule_sections:
        each.refuse_unknown_keys(RULE_KEYS)
    return MeshFile(FileKind.MESH, tuple(clusters), tuple(rules) if "rules" in document else None)
