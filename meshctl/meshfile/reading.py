"""From a file's text to a `MeshFile`, or to all of its errors at once."""

from __future__ import annotations

from dataclasses import replace

from mesh.rpc import routing
from meshctl.meshfile import entries, envoy, native
from meshctl.meshfile.model import ClusterEntry, FileError, Findings, MeshFile
from meshctl.meshfile.section import root

_ENVOY_KEYS = ("listeners", "static_resources")


def parse(text: str) -> MeshFile:
    """Read a file of either kind. Raises FileError with every error that it has."""
    findings = Findings()
    document = root(text, findings)
    if findings.errors:
        raise FileError(findings.errors)
    if any(key in document for key in _ENVOY_KEYS):
        file = envoy.read(document, findings)
    elif any(key in document for key in native.FILE_KEYS):
        file = native.read(document, findings)
    else:
        findings.error(document.line, "", "neither mesh.yaml (clusters, rules) nor an Envoy configuration (listeners)")
        raise FileError(findings.errors)
    entries.refuse_duplicates(file.clusters, file.rules or (), findings)
    if findings.errors:
        raise FileError(findings.errors)
    notices = sorted(findings.notices, key=lambda each: each.line)
    return replace(file, notices=tuple(notices))


def with_bootstrap(file: MeshFile, overrides: dict[str, list[str]]) -> MeshFile:
    """The file with other addresses for the named clusters. Raises KeyError with a name that the file does not have."""
    names = {each.spec.cluster_name for each in file.clusters}
    for name in overrides:
        if name not in names:
            raise KeyError(name)
    return replace(file, clusters=tuple(_moved(each, overrides.get(each.spec.cluster_name)) for each in file.clusters))


def _moved(entry: ClusterEntry, addresses: list[str] | None) -> ClusterEntry:
    if addresses is None:
        return entry
    spec = routing.ClusterSpec()
    spec.CopyFrom(entry.spec)
    spec.bootstrap_servers[:] = addresses
    return replace(entry, spec=spec)
