"""Which Kafka clusters there are and how a job connects to them: as control tells it, or as the operator does.

1. Control keeps secrets as references (`${env:NAME}`, `${file:/path}`); they are resolved here, in the driver's process
   and when a cluster is used, and go to Spark's workers as properties of their clients. One that can't be resolved is
   the trouble of its cluster alone.
2. What control has told may be kept in a file, with references as they are, for a job that has to be started again
   while control is away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf import json_format

from mesh.cluster_properties import allowed
from mesh.connection_security import connection_properties
from mesh.rpc import admin, admin_grpc
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.settings import host_port
from mesh.whole_files import replace_file

BOOTSTRAP = "bootstrap.servers"
PAGE_SIZE = 1000  # the largest that control gives
KEPT_FILE = "clusters.json"
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)  # control is a neighbour; a proxy for the web is not on the way

log = structlog.get_logger(__name__)


class ClustersError(Exception):
    """The clusters are not known; the message says why, and never a secret."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, as clients of the pipeline reach it."""

    name: str
    said: Mapping[str, str] = field(repr=False)
    """librdkafka's properties, `bootstrap.servers` among them; secrets may be references."""
    home: bool = False
    """Whether the mesh keeps its own topics there."""

    @property
    def properties(self) -> dict[str, str]:
        """Secrets resolved. ClustersError where one can't be."""
        try:
            return {name: resolve_property(name, value) for name, value in self.said.items()}
        except UnresolvedReferenceError as error:
            raise ClustersError(f"cluster {self.name!r}: {error}") from None


def read_clusters(
    control_addresses: tuple[str, ...], timeout_s: float, kept_in: Path | None = None
) -> dict[str, Cluster]:
    """The registered clusters by name, in the order of their registration. In the folder `kept_in` they are kept, and
    found again while control does not answer.
    """
    try:
        found = _asked(control_addresses, timeout_s)
    except ClustersError as error:
        kept = _kept(kept_in) if kept_in is not None else None
        if kept is None:
            raise
        log.warning("the clusters are taken as control last told them", file=str(kept_in), reason=str(error))
        found = kept
    else:
        if kept_in is not None:
            _keep(kept_in, found)
    return {each.spec.cluster_name: _registered(each) for each in found}


def _asked(control_addresses: tuple[str, ...], timeout_s: float) -> list[admin.Cluster]:
    """Any replica of control may tell them: the first that answers."""
    *others, last = control_addresses
    for address in others:
        with suppress(ClustersError):
            return _told_by(address, timeout_s)
    return _told_by(last, timeout_s)


def _told_by(address: str, timeout_s: float) -> list[admin.Cluster]:
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = admin_grpc.ClusterServiceStub(channel)
        asked = admin.ListClustersRequest(page_size=PAGE_SIZE)
        found: list[admin.Cluster] = []
        while True:
            try:
                page = stub.ListClusters(asked, timeout=timeout_s)
            except grpc.RpcError as error:
                raise ClustersError(
                    f"control at {address} does not tell the clusters: {_reason(error)}; "
                    "start it, set KAFKA_MESH_PIPELINE_CONTROL_ADDRESSES, or name them: --cluster NAME=HOST:PORT"
                ) from error
            found += page.clusters
            if not page.next_page_token:
                return found
            asked.page_token = page.next_page_token


def _keep(folder: Path, clusters: Iterable[admin.Cluster]) -> None:
    """What a job needs of them."""
    needed = admin.ListClustersResponse(clusters=[admin.Cluster(spec=each.spec, home=each.home) for each in clusters])
    content = f"{json_format.MessageToJson(needed, preserving_proto_field_name=True)}\n".encode()
    file = folder / KEPT_FILE
    try:
        if not file.exists() or file.read_bytes() != content:
            replace_file(file, content)
    except OSError as error:
        log.warning("the clusters can't be kept for when control is away", file=str(file), reason=str(error))


def _kept(folder: Path) -> list[admin.Cluster] | None:
    """None where nothing is kept that can be read."""
    try:
        content = (folder / KEPT_FILE).read_text(encoding="utf-8")
        return list(json_format.Parse(content, admin.ListClustersResponse(), ignore_unknown_fields=True).clusters)
    except (OSError, UnicodeDecodeError, json_format.ParseError):
        return None


def _reason(error: Any) -> str:
    status: grpc.Call = error  # what a stub raises is both
    return f"{status.code().name}: {status.details()}"


def _registered(cluster: admin.Cluster) -> Cluster:
    spec = cluster.spec
    security = connection_properties(allowed(spec.producer_config), allowed(spec.consumer_config))
    bootstrap = {BOOTSTRAP: ",".join(spec.bootstrap_servers)}
    return Cluster(spec.cluster_name, security | bootstrap, cluster.home)


def told_clusters(words: Iterable[str], properties: Mapping[str, str]) -> dict[str, Cluster]:
    """From `NAME=HOST:PORT,...`, all with the same further properties. The first one is home."""
    clusters: dict[str, Cluster] = {}
    for word in words:
        name, separator, addresses = word.partition("=")
        try:
            if not name or not separator:
                raise ValueError("no name")
            for address in addresses.split(","):
                host_port(address.strip())
        except ValueError:
            raise ClustersError(f"{word!r} names no cluster: it is NAME=HOST:PORT[,HOST:PORT...]") from None
        bootstrap = {BOOTSTRAP: addresses.replace(" ", "")}
        clusters[name] = Cluster(name, {**properties, **bootstrap}, home=not clusters)
    return clusters


def set_clusters(properties: Mapping[str, Mapping[str, str]]) -> dict[str, Cluster]:
    """From librdkafka's properties by name of the cluster. The first one is home."""
    clusters: dict[str, Cluster] = {}
    for name, each in properties.items():
        if not each.get(BOOTSTRAP):
            raise ClustersError(f"cluster {name!r} has no {BOOTSTRAP}")
        clusters[name] = Cluster(name, each, home=not clusters)
    return clusters


def home_of(clusters: Mapping[str, Cluster]) -> Cluster:
    """The one that holds the mesh's own topics."""
    for cluster in clusters.values():
        if cluster.home:
            return cluster
    raise ClustersError(f"none of the clusters is home (known: {', '.join(clusters) or 'none'})")


def properties_of(clusters: Mapping[str, Cluster], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Of these clusters alone, by name. ClustersError for one that is not known, or that lacks a secret."""
    wanted = sorted(set(names))
    if missing := [name for name in wanted if name not in clusters]:
        raise ClustersError(f"cluster {', '.join(missing)} is not registered (known: {', '.join(clusters) or 'none'})")
    return {name: clusters[name].properties for name in wanted}
