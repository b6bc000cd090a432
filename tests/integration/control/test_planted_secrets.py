"""A secret of its own in every place that takes one: none is in a log, event, audit, metric, answer, dump or file.

The places are the settings of control, router, gateway, sidecar and console by their types, what clusters and clients
are registered with, and what clients and callers show. `tests/unit/test_secret_settings.py` searches the pipeline's
settings, and what refused starts print.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import gettempdir
from urllib.parse import quote, urlsplit
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ScramMechanism  # type: ignore[attr-defined]  # its own documented way

from tests.fixtures.certificates import Authority
from tests.fixtures.forked_meshctl import forked_meshctl
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.fixtures.secret_settings import secret_settings
from tests.fixtures.secured_kafka import USER, SecuredKafka
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import WITHIN_S, ServiceProcess

ELSEWHERE = {"pipeline"}
"""See above."""
NOBODY, NOBODY_BY_TLS = "http://127.0.0.1:1", "https://127.0.0.1:1"
"""An address at which nobody answers."""
ASKED_S = 20.0
TRIED_MS = 8_000
NAMES = {"control": "control-1", "router": "r1", "gateway": "g1", "sidecar": "s1", "console": "console-1"}


class Secrets(dict[str, str]):
    """By their place; each is made when it is first asked for."""

    def __missing__(self, place: str) -> str:
        self[place] = f"planted-{uuid4().hex}"
        return self[place]

    def variable(self, place: str) -> str:
        """A reference to the secret in the environment."""
        return f"${{env:{self.name(place)}}}"

    @staticmethod
    def name(place: str) -> str:
        return "KAFKA_MESH_SECRET_" + "".join(each if each.isalnum() else "_" for each in place).upper()

    def found_in(self, text: str) -> list[str]:
        """The places whose secret is in the text: as it is, in base64 beside a name or alone, or quoted."""
        return [place for place, secret in self.items() if any(form in text for form in forms(secret))]


def forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret)
    for before in ("", "u:", "us:", "user:"):  # each place within the three bytes of a group
        encoded = base64.b64encode(f"{before}{secret}".encode()).decode()
        yield encoded[8:-4]


class House:
    """The services, and all that they show."""

    def __init__(self, folder: Path, secrets: Secrets, authority: Authority) -> None:
        self.folder, self.secrets, self.authority = folder, secrets, authority
        self.services: dict[str, ServiceProcess] = {}
        self.planted: set[str] = set()
        self.said: dict[str, str] = {}
        """The answers that callers got, by the call."""

    def start(self, service: str, secret: Mapping[str, str], *, tag: str = "", **settings: str) -> ServiceProcess:
        """With the settings that take secrets, and others."""
        self.planted |= {f"{service}.{name}" for name in secret}
        port, name = free_block(2), NAMES[service]
        own = {"RPC_TLS_FOLDER": str(certificate_of(self.authority, service, name).folder), "LOG_LEVEL": "DEBUG"}
        if service not in ("control", "console"):
            own["NAME"] = name
        started = ServiceProcess(
            service,
            port,
            self.folder / f"{service}{tag}.log",
            {**own, **{each.upper(): value for each, value in secret.items()}, **settings},
        )
        self.services[service + tag] = started
        started.start()
        wait_until(lambda: started.ready() == "ready", f"{service} is ready, see {started.log_file}", WITHIN_S)
        return started

    def meshctl(self, *arguments: str, check: bool = True) -> str:
        done = self._called(*arguments)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def read(self, *arguments: str) -> None:
        """Until it is answered: on a busy machine a handshake takes longer than a call waits."""
        wait_until(lambda: self._called(*arguments).returncode == 0, f"meshctl {' '.join(arguments)}", WITHIN_S)

    def _called(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        caller = certificate_of(self.authority, "admin", "ada").folder
        environment = {
            "MESHCTL_ADDRESS": self.services["control"].address,
            "MESHCTL_TLS_FOLDER": str(caller),
            "USER": "ada",
        }
        done = forked_meshctl().call(arguments, environment, self.folder)
        self.said[f"meshctl {' '.join(arguments)[:60]}"] = done.stdout + done.stderr
        return done

    def ask(self, url: str, body: object = None, **headers: str) -> None:
        """By HTTP; whatever the answer is, it is kept."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
        trusting = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(request, timeout=ASKED_S, context=trusting) as answer:
                self.said[url] = f"{answer.headers}{answer.read().decode(errors='replace')}"
        except urllib.error.HTTPError as error:
            self.said[url] = f"{error.code} {error.headers}{error.read().decode(errors='replace')}"

    def stop(self) -> None:
        for service in reversed(self.services.values()):
            with contextlib.suppress(AssertionError):
                service.stop()


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    return Secrets()


@pytest.fixture
def house(tmp_path: Path, secrets: Secrets, authority: Authority) -> Iterator[House]:
    made = House(tmp_path, secrets, authority)
    try:
        yield made
    finally:
        made.stop()


def records_of(bootstrap: str, topics: list[str]) -> str:
    """All that is in these topics, keys and headers included."""
    consumer, shown = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid4().hex}), []
    known = consumer.list_topics(timeout=WITHIN_S).topics
    for topic in topics:
        for partition in known[topic].partitions if topic in known else ():
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WITHIN_S)
            consumer.assign([TopicPartition(topic, partition, first)])
            for _ in range(end - first):
                record = consumer.poll(WITHIN_S)
                assert record is not None
                assert record.error() is None, record.error()
                shown.append(f"{record.key()!r} {record.value()!r} {record.headers()}")
    consumer.close()
    return "\n".join(shown)


def tables_of(url: str) -> str:
    """All rows of all tables but that of verifiers, which `test_users.py` searches."""
    with psycopg.connect(url) as connection:
        names = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        return "\n".join(
            str(connection.execute(f'select "{name}"::text from "{name}"'.encode()).fetchall()) for (name,) in names
        )


def client(bootstrap: str, authority: Authority, user: str, password: str, topic: str) -> list[str]:
    """The errors that a producer of one record hears."""
    heard: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "message.timeout.ms": TRIED_MS,
            "error_cb": lambda error: heard.append(str(error)),
        }
    )
    producer.produce(topic, b"{}", on_delivery=lambda error, _: heard.append(str(error)))
    producer.flush(WITHIN_S)
    return heard


def bearing(bootstrap: str, authority: Authority, token: str) -> list[str]:
    """The errors that a producer with this token hears."""
    heard: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, 4e9),
            "error_cb": lambda error: heard.append(str(error)),
        }
    )
    wait_until(lambda: producer.poll(0.1) or heard, "the client hears an error", WITHIN_S)
    return heard


def test_no_planted_secret_is_found_anywhere(
    house: House,
    secrets: Secrets,
    secured: SecuredKafka,
    database: str,
    events_topic: str,
    unique_name: Callable[[str], str],
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = unique_name("cards")
    own = [events_topic, f"{events_topic}.audit", f"{events_topic}.snapshots", f"{events_topic}.records", topic]
    places = ("cluster", "alice", "exchange", "registry", "tracing", "home")
    for place in places:
        monkeypatch.setenv(secrets.name(place), secrets[place])
    monkeypatch.setenv(secrets.name("registry"), f"user:{secrets['registry']}")
    for password in ("cluster", "home"):
        secured.set_password(ScramMechanism.SCRAM_SHA_512, f"{USER}-{password}", secrets[password])

    def login(place: str) -> dict[str, str]:
        return secured.way("SCRAM-SHA-512 over tls", f"{USER}-{place}", secrets.variable(place)).properties

    def key(place: str, name: str) -> dict[str, str]:
        signed = authority.sign(place, password=secrets[place])
        return {f"{name}CERTIFICATE": str(signed.certificate), f"{name}KEY": str(signed.key)}

    home = secured.way("SCRAM-SHA-512 over tls").bootstrap
    at_home = {"HOME_BOOTSTRAP_SERVERS": home}
    home_login = {"home_properties": json.dumps(login("home"))}
    registry = {"schema_registry_user_info": secrets.variable("registry")}
    tracing = {"tracing_headers": json.dumps({"authorization": secrets.variable("tracing")})}
    traced = {"TRACING_ENDPOINT": NOBODY, "TRACING_PROTOCOL": "http/protobuf", "TRACING_RATE": "1"}

    secrets["database"] = str(urlsplit(database).password)
    control = house.start(
        "control",
        {"database_url": database, **home_login},
        **at_home,
        EVENTS_TOPIC=events_topic,
        AUDIT_TOPIC=own[1],
        SECRETS_FOLDER=gettempdir(),
        FIRST_ADMINS="ada",
    )

    def options(properties: Mapping[str, str]) -> list[str]:
        return [word for each in properties.items() for word in ("--producer-config", "=".join(each))]

    house.meshctl("cluster", "register", "c1", home, *options(login("cluster")))
    issuer = secured.issuer.properties(secrets.variable("exchange"))
    issuer.pop("https.ca.location", None)
    exchanging = {"security.protocol": "SASL_SSL", **issuer}
    house.meshctl("cluster", "register", "c2", home, "--allow-unreachable", *options(exchanging))
    literal = {**login("cluster"), "sasl.password": secrets["a literal password"]}
    house.meshctl("cluster", "register", "c3", home, *options(literal), check=False)
    house.meshctl("cluster", "identity", "set", "c2", "exchange")
    mapped = ("sasl.username=alice", f"sasl.password={secrets.variable('alice')}")
    house.meshctl("cluster", "identity", "map", "c1", "User:alice", *mapped)
    house.meshctl("cluster", "identity", "set", "c1", "mapped", "--others", "mesh")
    house.meshctl("rule", "set", "--topic", topic, "--to", "c1")
    for user in ("alice", "bob"):
        file = tmp_path / f"{user}.password"
        file.write_text(secrets[f"password of {user}"])
        house.meshctl("users", "set", user, "--password-file", str(file))
        file.unlink()
    house.meshctl("protection", "set", "pii", "--topic", topic, "--json-field", "number", "--key-id", "pii")

    router = house.start(
        "router",
        {**home_login, **registry, **tracing},
        **at_home,
        **traced,
        EVENTS_TOPIC=events_topic,
        SNAPSHOTS_TOPIC=own[2],
        SNAPSHOT_EVERY_EVENTS="1",
        CONTROL_ADDRESSES=control.address,
        SCHEMA_REGISTRY_URL=NOBODY,
    )
    tokens = json.dumps([{"jwks_url": f"{NOBODY}/keys", "issuer": "an-issuer", "audience": "mesh"}])
    port = free_block(1)
    house.start(
        "gateway",
        {
            "tls_key_password": secrets["gateway's key"],
            "key_service_token": secrets["token of the gateway at Vault"],
            **home_login,
            **registry,
            **tracing,
        },
        **key("gateway's key", "TLS_"),
        **at_home,
        **traced,
        LISTEN=f"SASL_SSL://127.0.0.1:{port}",
        SASL_MECHANISMS="SCRAM-SHA-512 PLAIN OAUTHBEARER",
        TOKEN_ISSUERS=tokens,
        USERS_FROM_CONTROL="true",
        ROUTER_ADDRESSES=router.address,
        STATE_DIR=str(tmp_path / "gateway"),
        AUDIT_RECORDS_TOPIC="mesh.audit-records",
        KEY_SERVICE=f"vault:{NOBODY}/transit",
        SCHEMA_REGISTRY_URL=NOBODY,
        DRAIN_TIMEOUT_S="1",
    )
    gateway = f"127.0.0.1:{port}"
    logins = [(user, secrets[f"password of {user}"]) for user in ("alice", "bob")]
    logins.append(("bob", secrets["a wrong password"]))
    with ThreadPoolExecutor(len(logins)) as threads:  # each of them tries for long
        heard = [threads.submit(client, gateway, authority, user, password, topic) for user, password in logins]
    for (user, password), errors in zip(logins, heard, strict=True):
        house.said[f"client {user} {password[-3:]}"] = str(errors.result())
    house.said["client with a token"] = str(bearing(gateway, authority, f"e30.{secrets['a bearer token']}.e30"))

    kafka = {**login("cluster"), "sasl.password": secrets["cluster"]}
    sidecar_secrets = {
        "tls_key_password": secrets["sidecar's key"],
        "influx_token": secrets["token of Influx"],
        "ksqldb_user_info": f"user:{secrets['ksqlDB']}",
        "ksqldb_key_password": secrets["key for ksqlDB"],
        "schema_registry_key_password": secrets["key for the registry"],
        "backend_headers": json.dumps({"X-Api-Key": secrets["header of the backend"]}),
        "backend_token_client_secret": secrets["client of the backend's issuer"],
        "backend_key_password": secrets["key for the backend"],
        "kafka_properties": json.dumps(kafka),
        "producer_properties": json.dumps({"ssl.key.password": secrets["a producer's key"]}),
        "consumer_properties": json.dumps({"ssl.key.password": secrets["a consumer's key"]}),
        **home_login,
        **tracing,
    }
    ways = {
        **key("sidecar's key", "TLS_"),
        **key("key for the backend", "BACKEND_"),
        **{f"{name}_LOCATION": path for name, path in key("key for ksqlDB", "KSQLDB_").items()},
        **{f"{name}_LOCATION": path for name, path in key("key for the registry", "SCHEMA_REGISTRY_").items()},
    }
    for tag, registered in (
        ("", {"schema_registry_user_info": f"user:{secrets['registry of the sidecar']}"}),
        ("-token", {"schema_registry_token": secrets["token of the registry"]}),
    ):
        admin = f"127.0.0.1:{free_block(1)}"
        sidecar = house.start(
            "sidecar",
            {**sidecar_secrets, **registered},
            tag=tag,
            **ways,
            **at_home,
            **traced,
            BOOTSTRAP_SERVERS=home,
            CONTROL_ADDRESSES=control.address,
            STATE_DIR=str(tmp_path / f"sidecar{tag}"),
            ADMIN_LISTEN=admin,
            TOKEN_ISSUERS=tokens,
            BACKEND_URL=f"{NOBODY_BY_TLS}/",
            BACKEND_TOKEN_URL=f"{NOBODY_BY_TLS}/token",
            BACKEND_TOKEN_CLIENT_ID="sidecar",
            KSQLDB_URL=NOBODY_BY_TLS,
            SCHEMA_REGISTRY_URL=NOBODY_BY_TLS,
            INFLUX_URL=f"{NOBODY}/api/v2/write?org=o&bucket=b",
            INFLUX_INTERVAL_MS="200",
            REACTIVE_ENABLED="false",
        )
        bearer = {"Authorization": f"Bearer e30.{secrets['token of a backend']}.e30"}
        body = {"keyFormat": "string", "valueFormat": "avro", "records": [{"key": "k", "value": "v"}]}
        house.ask(f"https://{sidecar.address}/producers/{topic}", body, **bearer)
        house.ask(f"https://{admin}/adm/server/info", **bearer)
        house.ask(f"https://{admin}/adm/server/info")
    house.start("console", registry, CONTROL_ADDRESS=control.address, SCHEMA_REGISTRY_URL=NOBODY)

    for reading in (
        "status", "cluster list", "cluster identity show c1", "cluster identity show c2", "rule list", "users list",
        "protection list", "history", "audit", "export", "clients", "validation list", "listener list", "tenants list",
    ):  # fmt: skip
        for form in ("table", "json"):
            house.read(*reading.split(), *(() if reading == "export" else ("-o", form)))
    for name, service in house.services.items():
        for page in ("metrics", "ready", "live", "health"):
            house.ask(f"{service.management}/{page}")
        house.said[f"log of {name}"] = service.log_file.read_text(errors="replace")
    house.stop()
    house.said["stopped"] = "".join(service.log_file.read_text() for service in house.services.values())
    house.said["topics"] = records_of(secured.bootstrap, [*own, "mesh.audit-records", "mesh.traffic"])
    house.said["tables"] = tables_of(database)
    given = {each.name for each in tmp_path.rglob("*.key")}
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name not in given:
            house.said[str(file)] = file.read_bytes().decode("latin-1")

    due = {f"{each.settings.service}.{each.name}" for each in secret_settings() if each.settings.service in NAMES}
    assert due - house.planted == set(), "a setting takes a secret, and this test plants none there"
    assert {each.settings.service for each in secret_settings()} - set(NAMES) == ELSEWHERE
    assert {place: found for place, text in house.said.items() if (found := secrets.found_in(text))} == {}
    for place in ("topics", "tables", "log of gateway", "log of sidecar", "meshctl audit -o json"):
        assert len(house.said[place]) > 500, f"{place} has nothing to search"
    assert "Authentication failed" in str(house.said), "clients with wrong secrets were refused"
    assert "KAFKA_MESH_SECRET_ALICE" in house.said["topics"], "references are shown, secrets are not"


def test_the_search_finds_a_secret_in_each_of_its_forms() -> None:
    secrets = Secrets()
    secret = secrets["one"]
    for text in (
        f"password={secret};",
        base64.b64encode(f"mesh:{secret}".encode()).decode(),
        base64.b64encode(f"\0mesh-user\0{secret}".encode()).decode(),
        f"?p={quote(secret)}&x=1",
    ):
        assert secrets.found_in(f"a line {text} of a log") == ["one"]
    assert secrets.found_in("nothing") == []
