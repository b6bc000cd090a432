"""A Kafka cluster has one name in a mesh: where the file calls a registered cluster otherwise, the mesh's counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mesh.rpc import admin, routing
from meshctl.meshfile.model import FileError, Finding, MeshFile


def with_registered_names(file: MeshFile, clusters: Iterable[admin.Cluster]) -> MeshFile:
    """The file in the mesh's own names, with a notice for each cluster that has another name in the mesh.

    Addresses identify clusters. FileError when the file has two names for one cluster.
    """
    specs = [each.spec for each in clusters]
    registered = {spec.cluster_name for spec in specs}
    by_address = {address: spec.cluster_name for spec in specs for address in spec.bootstrap_servers}
    taken = {entry.spec.cluster_name: entry.spec.cluster_name for entry in file.clusters}
    names: dict[str, str] = {}
    errors: list[Finding] = []
    notices: list[Finding] = []
    for entry in file.clusters:
        name = entry.spec.cluster_name
        address = next((each for each in entry.spec.bootstrap_servers if each in by_address), None)
        if name in registered or address is None:
            continue
        known = by_address[address]
        if known in taken:
            text = f"{address} is an address of {known}, and so is {taken[known]}; a cluster has one name"
            errors.append(Finding(entry.line, name, text))
            continue
        names[name], taken[known] = known, name
        notices.append(Finding(entry.line, name, f"{address} is registered as {known}, which is its name in this mesh"))
    if errors:
        raise FileError(errors)
    return replace(
        file,
        clusters=tuple(replace(entry, spec=_named(entry.spec, names)) for entry in file.clusters),
        rules=None
        if file.rules is None
        else tuple(replace(entry, spec=_retargeted(entry.spec, names)) for entry in file.rules),
        notices=(*file.notices, *notices),
    )


def _named(spec: routing.ClusterSpec, names: dict[str, str]) -> routing.ClusterSpec:
    renamed = routing.ClusterSpec()
    renamed.CopyFrom(spec)
    renamed.cluster_name = names.get(spec.cluster_name, spec.cluster_name)
    return renamed


def _retargeted(spec: routing.RuleSpec, names: dict[str, str]) -> routing.RuleSpec:
    renamed = routing.RuleSpec()
    renamed.CopyFrom(spec)
    renamed.target_cluster = names.get(spec.target_cluster, spec.target_cluster)
    return renamed
