"""The part of the gateway's settings that is about listeners, and about what clients have to prove there."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from mesh.connection_security import Mechanism
from mesh.server_certificate import TlsFiles, load
from mesh.settings import AddressList, WordList, refuse_open_door
from mesh.tokens.issuers import TokenBounds
from mesh.user_files import read_users
from services.gateway.authentication.certificate_names import name_rules
from services.gateway.authentication.client_tokens import ClientIssuer
from services.gateway.downstream.entrance import PASSWORDS, Proofs
from services.gateway.listeners import Certificates, Listener, ListenList, Security, listeners

READABLE = (Mechanism.PLAIN.value, Mechanism.OAUTHBEARER.value)
"""Mechanisms whose secret anyone on the way could read without TLS."""


class AuthenticationSettings(TokenBounds):
    """A part of GatewaySettings."""

    listen: ListenList = Field(
        default=("127.0.0.1:19092",),
        min_length=1,
        description="Where Kafka clients connect, as `HOST:PORT` or `SECURITY://HOST:PORT`, with `PLAINTEXT`, `SSL` "
        "(or `tls`), `SASL_PLAINTEXT` or `SASL_SSL`; several for several networks.",
    )
    advertised: AddressList = Field(
        default=(),
        description="The address that clients get, one for each of `LISTEN`; empty: the same. Over TLS, `{node}` in a "
        "host gives each virtual node a host of its own: see `docs/how-to/gateway-addresses.md`.",
    )
    node_ports: WordList = Field(
        default=(),
        description="For each of `LISTEN` the ports of single virtual nodes: `FIRST-LAST` for nodes 100 and up, or "
        "`NODE=PORT NODE=PORT`, or `-` for none.",
    )
    allow_insecure: bool = Field(
        default=False,
        description="Clients beyond this machine need not prove who they are, and `PLAIN` and `OAUTHBEARER` are "
        "served without TLS, too.",
    )
    sasl_mechanisms: WordList = Field(
        default=(),
        description="How clients log in at `SASL_` listeners: `SCRAM-SHA-512`, `SCRAM-SHA-256`, `OAUTHBEARER`, "
        "`PLAIN`, separated by spaces; one list for each of `LISTEN` (`-` where nobody logs in), or one for all; "
        "empty: both of SCRAM. See `docs/how-to/client-authentication.md`.",
    )
    users_file: Path | None = Field(
        default=None,
        description="The users of PLAIN and SCRAM, as `meshctl users set --file` writes them. The gateway reads the "
        "file again when it changes.",
    )
    users_from_control: bool = Field(
        default=False,
        description="The users of PLAIN and SCRAM are those of control (`meshctl users`), by way of routers, instead "
        "of `USERS_FILE`. The gateway keeps the last users in `STATE_DIR`.",
    )
    sasl_max_session_s: float = Field(
        default=0.0,
        ge=0,
        description="Seconds after which clients must log in again (`connections.max.reauth.ms` of a broker); 0: "
        "never, except that a token expires.",
    )
    token_issuers: tuple[ClientIssuer, ...] = Field(
        default=(), description="The issuers whose tokens count for OAUTHBEARER (JSON or YAML)."
    )
    tls_certificate: Path | None = Field(
        default=None, description="Certificate for TLS listeners, with its chain, in PEM."
    )
    tls_key: Path | None = Field(
        default=None,
        description="The key of the certificate, in PEM. The gateway loads both files again when they change.",
    )
    tls_key_password: SecretStr = Field(
        default=SecretStr(""), description="Opens the key; may be `${env:NAME}` or `${file:/path}`."
    )
    tls_client_ca: Path | None = Field(
        default=None,
        description="Authorities, in PEM, for the certificates of clients. With it, clients of `SSL` listeners must "
        "show a certificate that one of them signed, unless `TLS_CLIENT_AUTH` says otherwise.",
    )
    tls_client_auth: WordList = Field(
        default=(),
        description="Whether clients show certificates (`ssl.client.auth`): `required`, `requested` or `none`; one for "
        "each of `LISTEN`, or one for all; empty: `required` at `SSL` listeners, if `TLS_CLIENT_CA` is set.",
    )
    tls_client_crl: Path | None = Field(
        default=None,
        description="Lists of revoked certificates, in PEM, one for each of `TLS_CLIENT_CA`. A certificate whose "
        "authority has no list here, or an outdated one, is refused. The gateway loads the file again when it changes.",
    )
    principal_mapping_rules: str = Field(
        default="DEFAULT",
        description="From the name in a client's certificate to its principal: Kafka's `ssl.principal.mapping.rules`.",
    )

    @field_validator("principal_mapping_rules")
    @classmethod
    def _are_rules(cls, text: str) -> str:
        name_rules(text)
        return text

    @field_validator("token_issuers")
    @classmethod
    def _told_apart(cls, issuers: tuple[ClientIssuer, ...]) -> tuple[ClientIssuer, ...]:
        if len({each.issuer for each in issuers}) < len(issuers):
            raise ValueError("two of them have the same issuer, so that a token would belong to both")
        return issuers

    @model_validator(mode="after")
    def _listeners_can_be_had(self) -> Self:
        if self.tls_client_crl is not None and self.tls_client_ca is None:
            raise ValueError("tls_client_crl revokes certificates of tls_client_ca: set tls_client_ca, too")
        if any(listener.tls for listener in self.listeners):
            if self.tls is None:
                raise ValueError("listen has a listener by TLS: set tls_certificate and tls_key, files in PEM")
            load(self.tls)
        elif self.tls_certificate or self.tls_key or self.tls_client_ca:
            raise ValueError("tls_certificate, tls_key and tls_client_ca are for TLS in listen: tls:// or SASL_SSL://")
        return self

    @model_validator(mode="after")
    def _users_have_one_origin(self) -> Self:
        if self.users_from_control and self.users_file is not None:
            raise ValueError("users_from_control: users come from control or from users_file; unset one of both")
        return self

    @model_validator(mode="after")
    def _clients_can_prove_who_they_are(self) -> Self:
        offered = {mechanism for listener in self.listeners for mechanism in listener.mechanisms}
        if offered & PASSWORDS:
            if self.users_file is None and not self.users_from_control:
                raise ValueError(
                    f"users_file: {' and '.join(sorted(offered & PASSWORDS))} need users; set users_file, or "
                    "users_from_control"
                )
            if self.users_file is not None:
                read_users(self.users_file)
        if Mechanism.OAUTHBEARER.value in offered and not self.token_issuers:
            raise ValueError("token_issuers: OAUTHBEARER needs issuers whose tokens count")
        for listener in self.listeners:
            self._check(listener)
        return self

    def _check(self, listener: Listener) -> None:
        if listener.certificates is not Certificates.NONE and self.tls_client_ca is None:
            raise ValueError(f"tls_client_ca: {listener} asks for certificates; set the authorities that sign them")
        readable = [each for each in listener.mechanisms if each in READABLE]
        if readable and not listener.tls and not self.allow_insecure:
            raise ValueError(
                f"listen {listener}: everyone on the way could read what clients send with {' and '.join(readable)}; "
                "use SASL_SSL, or set allow_insecure (KAFKA_MESH_GATEWAY_ALLOW_INSECURE=1) where nobody else is"
            )
        harm = "everyone who reaches this address could read and write all topics"
        place = f"{listener.host}:{listener.port}"
        refuse_open_door("listen", place, "gateway", safe=self.allow_insecure or listener.asks_who, harm=harm)

    @property
    def listeners(self) -> list[Listener]:
        """The listeners, with the addresses that their clients get."""
        found = listeners(self.listen, self.advertised, self.node_ports, self.sasl_mechanisms, self.tls_client_auth)
        if self.tls_client_ca is None or self.tls_client_auth:
            return found
        return [each.asking(Certificates.REQUIRED) if each.security is Security.SSL else each for each in found]

    @property
    def tls(self) -> TlsFiles | None:
        """The files that TLS listeners need."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        password = self.tls_key_password.get_secret_value()
        return TlsFiles(
            self.tls_certificate, self.tls_key, password, self.tls_client_ca, client_crl=self.tls_client_crl
        )

    def tls_of(self, listener: Listener) -> TlsFiles | None:
        """The files of one listener; None without TLS."""
        files = self.tls if listener.tls else None
        if files is None or listener.certificates is Certificates.REQUIRED:
            return files
        if listener.certificates is Certificates.REQUESTED:
            return replace(files, client_may_have_none=True)
        return replace(files, client_ca=None, client_crl=None)

    @property
    def proofs(self) -> Proofs:
        rules = name_rules(self.principal_mapping_rules)
        return Proofs(
            self.users_file, self.users_from_control, self.token_issuers, self, rules, self.sasl_max_session_s or inf
        )
