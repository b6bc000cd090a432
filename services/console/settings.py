"""Settings of the console: environment KAFKA_MESH_CONSOLE_<FIELD>, or the section `console` of the --config file."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from pydantic import Field, model_validator

from mesh.connection_security import Protocol
from mesh.rpc.tls import RpcTlsSettings
from mesh.schemas.registry import Registry
from mesh.server_certificate import TlsFiles
from mesh.settings import Address, ServiceSettings, WordList, host_port, is_loopback, refuse_open_door

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class ReadWithoutLogin(Enum):
    """Whether those who have not logged in may read what the console's own certificate may read."""

    LOOPBACK = "loopback"
    ALWAYS = "always"
    NEVER = "never"


class ConsoleSettings(RpcTlsSettings, ServiceSettings, service="console"):
    """The console: pages about a mesh, by the rights of the person who looks."""

    listen: Address = "127.0.0.1:8090"
    """HTTP for browsers; HTTPS with `TLS_CERTIFICATE`."""
    allow_insecure: bool = False
    """The console listens beyond this machine without TLS, where nobody else reaches the address."""
    tls_in_front: bool = False
    """A proxy in front of the console has TLS: browsers send cookies by TLS alone."""
    hosts: WordList = ()
    """Names by which browsers call the console, without ports; names of this machine always count."""
    tls_certificate: Path | None = None
    """Certificate of the console for browsers, in PEM, with the authorities below the one that browsers trust."""
    tls_key: Path | None = None
    """Key of `tls_certificate`, without a password."""
    metrics_listen: Address = "127.0.0.1:7175"
    """Address of `/metrics`, `/live` and `/ready`."""
    control_address: Address = "127.0.0.1:7070"
    """Control, for readers who have not logged in. The console shows its own certificate there."""
    token_address: Address | None = None
    """`KAFKA_MESH_CONTROL_TOKEN_LISTEN` of control, for those who log in; empty: nobody can log in."""
    token_ca: Path | None = None
    """Authorities that sign control's certificate, in PEM; empty: `ca.crt` of `rpc_tls_folder`, or the system's."""
    read_without_login: ReadWithoutLogin = ReadWithoutLogin.LOOPBACK
    """The readers who need no log-in: those on this machine, all, or none. They see what the console itself may see."""
    session_minutes: int = Field(default=480, ge=1, le=10_080)
    """Minutes until a log-in ends. The end of its token ends it, too."""
    idle_minutes: int = Field(default=60, ge=1, le=10_080)
    """Minutes without a request until a log-in ends."""
    max_sessions: int = Field(default=1000, ge=1, le=100_000)
    """Log-ins at a time. One more ends the log-in that was idle for longest."""
    max_streams: int = Field(default=200, ge=1, le=10_000)
    """Open pages that update themselves. One more page shows no updates until it is loaded again."""
    call_timeout_s: float = Field(default=15.0, ge=0.1, le=300)
    """Seconds that control has for an answer."""
    gateway_address: Address | None = None
    """A listener of a gateway, for records of topics; empty: the console shows no records."""
    gateway_protocol: Protocol = Protocol.SASL_SSL
    """`security.protocol` of that listener. By `sasl_ssl` each viewer logs in with the own token (OAUTHBEARER). By
    `plaintext` and `ssl` the gateway can't tell viewers apart, and the console only reads."""
    gateway_ca: Path | None = None
    """Authorities that sign the certificate of that listener, in PEM; empty: those of the system."""
    sidecar_url: str = ""
    """Address of a sidecar, for the lines that viewers copy; empty: the lines have `$SIDECAR` in its place."""
    schema_registry_url: str = Field(default="", pattern=r"^(https?://[^@\s?#]+)?$")
    """Schema registry with Confluent's API, for records in Avro, Protobuf and JSON by a JSON schema; empty: none."""
    schema_registry_user_info: str = Field(default="", pattern=r"^(\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^}]+)\})?$")
    """The registry's `user:password`, as `${env:NAME}` or `${file:/path}`; read for each request."""
    schema_registry_ca: Path | None = None
    """Authorities that sign the registry's certificate, in PEM; empty: those of the system."""
    schema_registry_timeout_s: float = Field(default=3.0, ge=0.1, le=60)
    """Seconds that the registry has for a schema with all that it refers to."""
    max_reads: int = Field(default=4, ge=1, le=100)
    """Reads of records at a time. One more is refused."""
    max_tails: int = Field(default=10, ge=1, le=100)
    """Pages at a time that follow the records of a topic. One more is refused."""
    tail_records_per_s: int = Field(default=20, ge=1, le=1000)
    """Records that such a page shows in a second. A page that is far behind goes to the newest records."""
    records_page: int = Field(default=50, ge=1, le=200)
    """Records on a page at most."""
    records_scanned: int = Field(default=20_000, ge=100, le=10_000_000)
    """Records that one look reads at most, for example for a filter that few records fit."""
    records_mebibytes: int = Field(default=16, ge=1, le=1024)
    """MiB that one look reads at most."""
    records_timeout_s: float = Field(default=10.0, ge=0.5, le=300)
    """Seconds that one look takes at most."""
    record_bytes: int = Field(default=200, ge=20, le=1000)
    """Bytes of a key, a value or a header in a list of records. Each record has a page with more of it."""
    log_level: str = "INFO"
    """Least level of the entries in the log: `DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    @model_validator(mode="after")
    def _is_safe(self) -> ConsoleSettings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: set both, or neither")
        harm = "others could read tokens and cookies on their way; set tls_certificate and tls_key"
        safe = self.allow_insecure or self.tls_in_front or self.tls_certificate is not None
        refuse_open_door("listen", self.listen, self.service, safe=safe, harm=harm)
        is_open = self.gateway_protocol is Protocol.SASL_PLAINTEXT and self.gateway_address is not None
        if is_open and not is_loopback(host_port(self.gateway_address or "")[0]):
            raise ValueError("gateway_protocol: tokens would travel in the open; use sasl_ssl")
        return self

    @property
    def tls(self) -> TlsFiles | None:
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key)

    @property
    def schema_registry(self) -> Registry | None:
        if not self.schema_registry_url:
            return None
        ca = "" if self.schema_registry_ca is None else str(self.schema_registry_ca)
        return Registry(self.schema_registry_url, self.schema_registry_user_info, ca, self.schema_registry_timeout_s)

    @property
    def browsers_use_tls(self) -> bool:
        return self.tls is not None or self.tls_in_front

    @property
    def reads_without_login(self) -> bool:
        if self.read_without_login is ReadWithoutLogin.LOOPBACK:
            return is_loopback(host_port(self.listen)[0])
        return self.read_without_login is ReadWithoutLogin.ALWAYS

    @property
    def known_hosts(self) -> frozenset[str]:
        """Values of the header Host, without ports. Other names are those of a page that wants to read this one."""
        return frozenset((*LOCAL_HOSTS, self.listen.rpartition(":")[0], *self.hosts))

    def authorities(self) -> bytes | None:
        """Those that control's certificate is checked with; None: the system's. OSError."""
        named = self.token_ca or (None if self.rpc_tls is None else self.rpc_tls.ca)
        return None if named is None else named.read_bytes()
