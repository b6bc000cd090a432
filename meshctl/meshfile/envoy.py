"""The configuration of Envoy's Kafka mesh filter, as it stands: listeners -> filter_chains -> filters -> KafkaMesh.

The reader takes the filter's clusters and rules. It keeps the listener and advertised address for a comparison with the
running gateway. It names and ignores everything else in the file.
"""

from __future__ import annotations

from dataclasses import replace

from meshctl.meshfile import entries
from meshctl.meshfile.model import AddressEntry, FileKind, Findings, MeshFile
from meshctl.meshfile.rules import rule
from meshctl.meshfile.section import Section, did_you_mean

TYPE_URL = "type.googleapis.com/envoy.extensions.filters.network.kafka_mesh.v3alpha.KafkaMesh"
FILTER_NAME = "envoy.filters.network.kafka_mesh"
HIGHEST_PORT = 65535
_FILTER_KEYS = ("upstream_clusters", "forwarding_rules", "advertised_host", "advertised_port")
ENVOY_MATCH = ("topic_prefix",)
_RULE_KEYS = (*ENVOY_MATCH, "target_cluster")


def read(document: Section, findings: Findings) -> MeshFile:
    """The one KafkaMesh filter of the file."""
    resources = document.section("static_resources") or document
    found: list[tuple[Section, Section]] = []
    for listener in resources.sections("listeners", required=True):
        found += [(listener, config) for config in _mesh_filters(listener, findings)]
    for section in {id(each): each for each in (document, resources)}.values():
        _name_the_rest(section, findings, ())
    empty = MeshFile(FileKind.ENVOY, (), None)
    if not found:
        if not findings.errors:
            findings.error(document.line, "", f"no filter with typed_config '@type' {TYPE_URL} is in this file")
        return empty
    for _listener, config in found[1:]:
        first = found[0][1].line
        findings.error(
            config.line, config.place, f"a second KafkaMesh filter (the first is at line {first}); a mesh has one"
        )
    listener, config = found[0]
    addresses = [each for each in (_listener_address(listener, findings), _advertised_address(config)) if each]
    for other, _config in found:
        _name_the_rest(other, findings, ())
    return replace(_filter(config, findings), addresses=tuple(addresses))


def _mesh_filters(listener: Section, findings: Findings) -> list[Section]:
    configs: list[Section] = []
    for chain in listener.sections("filter_chains"):
        for each in chain.sections("filters"):
            name = each.value("name")
            config = each.section("typed_config")
            label = name.text if name else "without a name"
            kind = config.value("@type") if config else None
            if config is not None and kind is not None and kind.text == TYPE_URL:
                configs.append(config)
                _name_the_rest(each, findings, ())
            elif label == FILTER_NAME or (config is not None and any(key in config for key in _FILTER_KEYS[:2])):
                found = f"is {kind.text!r}" if kind else "is missing"
                line = kind.line if kind else each.line
                findings.error(
                    line, each.place, f"'@type' of this filter's typed_config {found}; expected {TYPE_URL!r}"
                )
            else:
                findings.notice(each.line, each.place, f"filter {label} does not concern the mesh; left alone")
        _name_the_rest(chain, findings, ())
    return configs


def _filter(config: Section, findings: Findings) -> MeshFile:
    cluster_sections = config.sections("upstream_clusters", required=True)
    rule_sections = config.sections("forwarding_rules", required=True)
    clusters = [found for each in cluster_sections if (found := entries.cluster(each, findings)) is not None]
    rules = [entry for each in rule_sections if (entry := rule(each, findings, ENVOY_MATCH)) is not None]
    names = [each.spec.cluster_name for each in clusters]
    for entry in rules:
        target = entry.spec.target_cluster
        if target not in names:
            known = f" (there are: {', '.join(names)}){did_you_mean(target, names)}"
            findings.error(entry.line, entry.place, f"target_cluster {target!r} is not among upstream_clusters{known}")
    if "consumer_proxy_mode" in config:
        line = config.line_of_key("consumer_proxy_mode")
        config.value("consumer_proxy_mode")
        findings.notice(
            line, config.place_of("consumer_proxy_mode"), "left alone: the gateway passes each client's own fetches"
        )
    _name_the_rest(config, findings, _FILTER_KEYS)
    for each in cluster_sections:
        _name_the_rest(each, findings, entries.CLUSTER_KEYS)
    for each in rule_sections:
        _name_the_rest(each, findings, _RULE_KEYS)
    return MeshFile(FileKind.ENVOY, tuple(clusters), tuple(rules))


def _listener_address(listener: Section, findings: Findings) -> AddressEntry | None:
    address = listener.section("address")
    socket = address.section("socket_address") if address else None
    if address is None or socket is None:
        return None
    host = socket.value("address", required=True)
    port = socket.integer("port_value", lowest=1, highest=HIGHEST_PORT)
    for each in (address, socket):
        _name_the_rest(each, findings, ())
    return AddressEntry("listener", f"{host.text}:{port}", host.line) if host and port else None


def _advertised_address(config: Section) -> AddressEntry | None:
    host = config.value("advertised_host")
    port = config.integer("advertised_port", lowest=1, highest=HIGHEST_PORT)
    return AddressEntry("advertised address", f"{host.text}:{port}", host.line) if host and port else None


def _name_the_rest(section: Section, findings: Findings, known: tuple[str, ...]) -> None:
    for key, line, place in section.unknown_keys():
        findings.notice(line, place, f"does not concern the mesh; left alone{did_you_mean(key, known)}")
