"""The layout of one embedded mesh: its state folder, its ports, and the addresses that follow from them."""

from __future__ import annotations

import getpass
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from local.owners import SERVERS, Owner, joined, owner_name
from local.postgres import Postgres
from local.readiness import Condition, HttpReady, KafkaReady, PostgresReady
from local.services import HOST, PORTS, REPLICA_STEP, SERVICES, TLS_SETTING, Service, replica_ports, with_replicas

STATE_FOLDER = ".kafka-mesh"
CLUSTER_NAME = re.compile(r"[a-zA-Z0-9._-]{1,63}")
ENDPOINTS_FILE = "endpoints.json"
CERTIFICATES_FOLDER = "certificates"
ADMIN = "admin"
"""Role and folder of the person who started the mesh; `meshctl` looks there."""
CONSOLE = "console"
"""The service whose certificate is that of a viewer."""


class LayoutError(Exception):
    """The options do not make a mesh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One embedded mesh."""

    state: Path
    ports: Mapping[str, int] = field(default_factory=lambda: dict(PORTS))
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Given clusters, name to bootstrap servers; empty: the two embedded ones."""
    database: str = ""
    """Given database; empty: the embedded one."""
    example: bool = True
    """Whether a new mesh gets rules and topics of the example, beside its clusters."""
    pipeline: bool = False
    replicas: Mapping[str, int] = field(default_factory=dict)
    """How many instances of a service, where it is not one; their ports must be among `ports`."""

    def services(self) -> tuple[Service, ...]:
        """The rows of the table that this mesh runs."""
        left_out = set()
        if self.clusters:
            left_out |= {"jars", *(row.name for row in SERVICES if row.name.startswith("kafka-"))}
        if self.database:
            left_out.add("postgres")
        if not self.pipeline:
            left_out.add("pipeline")
        return with_replicas(tuple(row for row in SERVICES if row.name not in left_out), self.replicas)

    def instances(self, service: str) -> list[str]:
        """`gateway`, `gateway-2`, ..."""
        return [service, *(f"{service}-{number}" for number in range(2, self.replicas.get(service, 1) + 1))]

    def all_clusters(self) -> dict[str, str]:
        """Name to bootstrap servers; the first one is the mesh's home."""
        if self.clusters:
            return dict(self.clusters)
        return {name.removeprefix("kafka-"): address for name, address in self._addresses().items() if _is_kafka(name)}

    def facts(self) -> dict[str, str]:
        """The values of the table's placeholders."""
        clusters = self.all_clusters()
        facts = self._addresses()
        facts |= {f"{name}.port": str(port) for name, port in self.ports.items()}
        facts["routers"] = ",".join(self._addresses()[name] for name in self.instances("router"))
        facts["parts"] = "all" if self.example else "clusters"
        facts["state"] = str(self.state)
        facts["certificates"] = str(self.certificates)
        facts["admin"] = str(self.certificates / ADMIN)
        facts["owners"] = joined(self.owners())
        facts["home"] = next(iter(clusters.values()))
        facts["clusters"] = ";".join(f"{name}={bootstrap}" for name, bootstrap in clusters.items())
        facts["database_url"] = self.database or self.embedded_postgres.url()
        return facts

    @property
    def embedded_postgres(self) -> Postgres:
        return Postgres(folder=self.state / "postgres", port=self.ports["postgres"])

    @property
    def certificates(self) -> Path:
        """A folder for each owner, and that of the authority."""
        return self.state / CERTIFICATES_FOLDER

    def owners(self) -> tuple[Owner, ...]:
        """Members of this mesh, a pipeline for jobs by hand at least, and the person who starts the mesh."""
        members = [owner for row in replace(self, pipeline=True).services() if (owner := _owner(row))]
        return (*members, Owner(ADMIN, ADMIN, owner_name(_user())))

    def log(self, service: Service) -> Path:
        return self.state / "log" / f"{service.name}.log"

    def command(self, service: Service) -> list[str]:
        return [sys.executable, "-m", service.module, *(self._filled(word) for word in service.arguments)]

    def settings(self, service: Service) -> dict[str, str]:
        return {key: self._filled(value) for key, value in service.settings.items()}

    def address(self, service: Service) -> str:
        return self._filled(service.address)

    def readiness(self, service: Service) -> Condition:
        url = self._filled(service.ready)
        kind, _, rest = url.partition("://")
        if kind == "http":
            return HttpReady(url)
        if kind == "kafka":
            return KafkaReady(rest)
        if kind == "postgres":
            address, _, data = rest.partition("/")
            return PostgresReady(data=Path(data), address=address)
        raise LayoutError(f"service {service.name!r}: no readiness is of the kind {kind!r}")

    def needed_ports(self) -> dict[str, int]:
        return {name: self.ports[name] for service in self.services() for name in service.ports}

    def endpoints(self) -> dict[str, str]:
        """Name to `host:port`: what `meshctl`, `produce`, `consume` and `load` need to find this mesh."""
        own = {name: self._addresses()[name] for name in self.needed_ports() if not name.endswith("-controller")}
        return own | {f"kafka-{name}": bootstrap for name, bootstrap in self.all_clusters().items()}

    def write_endpoints(self) -> None:
        write_atomically(self.state / ENDPOINTS_FILE, json.dumps(self.endpoints(), indent=2) + "\n")

    def _addresses(self) -> dict[str, str]:
        return {name: f"{HOST}:{port}" for name, port in self.ports.items()}

    def _filled(self, text: str) -> str:
        if "{" not in text:
            return text
        for name, value in self.facts().items():
            text = text.replace(f"{{{name}}}", value)
        return text


def _owner(row: Service) -> Owner | None:
    """None: the row has no certificate."""
    role = row.arguments[0] if row.arguments else ""
    prefix = f"KAFKA_MESH_{role.upper()}_"
    folder = row.settings.get(prefix + TLS_SETTING)
    if folder is None:
        return None
    if role == CONSOLE:  # no member of the mesh: it reads as a person does who may read
        return Owner(Path(folder).name, "viewer", CONSOLE)
    name = row.settings.get(f"{prefix}NAME", f"{row.name}-1")
    return Owner(Path(folder).name, role, name, (HOST, "localhost") if role in SERVERS else ())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""


def _is_kafka(port_name: str) -> bool:
    return port_name.startswith("kafka-") and not port_name.endswith("-controller")


def parse_ports(base: int | None, values: tuple[str, ...], replicas: Mapping[str, int]) -> dict[str, int]:
    """All ports: the defaults, or in a row from `base`; with single ones as given (`gateway=29092`)."""
    ports = dict(PORTS)
    for row in SERVICES:
        for number in range(2, replicas.get(row.name, 1) + 1):
            own = (PORTS[port] + (number - 1) * REPLICA_STEP for port in row.ports)
            ports |= dict(zip(replica_ports(row, number), own, strict=True))
    if base is not None:
        ports = {name: base + offset for offset, name in enumerate(ports)}
    for value in values:
        name, _, number_text = value.partition("=")
        if name not in ports:
            raise LayoutError(f"--port {value!r}: no port is called {name!r} (known: {', '.join(ports)})")
        if not number_text.isdecimal() or not 0 < int(number_text) < 65536:
            raise LayoutError(f"--port {value!r} is not NAME=PORT")
        ports[name] = int(number_text)
    by_number = {number: name for name, number in ports.items()}
    for name, number in ports.items():
        if by_number[number] != name:
            raise LayoutError(f"port {number} is given to {name} and to {by_number[number]}; each needs one of its own")
    return ports


def parse_clusters(values: tuple[str, ...]) -> dict[str, str]:
    """`c1=HOST:PORT,HOST:PORT` as given on the command line."""
    clusters: dict[str, str] = {}
    for value in values:
        name, separator, servers = value.partition("=")
        if not separator or not CLUSTER_NAME.fullmatch(name) or not all(map(_is_address, servers.split(","))):
            raise LayoutError(
                f"--cluster {value!r} is not NAME=HOST:PORT[,HOST:PORT...], NAME of letters, digits, . _ -"
            )
        if name in clusters:
            raise LayoutError(f"--cluster {name!r} is given twice")
        clusters[name] = servers
    return clusters


def parse_database(url: str) -> str:
    """A PostgreSQL URL with a database, or nothing."""
    parts = urlsplit(url)
    if url and not (parts.scheme in ("postgresql", "postgres") and parts.path.strip("/")):
        raise LayoutError("--database is not a PostgreSQL URL: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    return url


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536


def write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
