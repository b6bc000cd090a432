"""The part of the gateway's settings that is about listeners, and about what clients have to prove there."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from mesh.listeners import Certificates, Security, name_rules
from mesh.server_certificate import TlsFiles, load
from mesh.settings import AddressList, WordList
from mesh.tokens.issuers import TokenBounds
from mesh.user_files import read_users
from services.gateway.authentication.client_tokens import ClientIssuer
from services.gateway.downstream.entrance import Proofs
from services.gateway.listeners import Listener, ListenList, listeners
from services.gateway.wanted_listeners import PASSWORDS, Means


class AuthenticationSettings(TokenBounds):
    """A part of GatewaySettings."""

    listen: ListenList = Field(
        default=("127.0.0.1:19092",),
        min_length=1,
        description="Where Kafka clients connect, as `HOST:PORT` or `SECURITY://HOST:PORT`, with `PLAINTEXT`, `SSL` "
        "(or `tls`), `SASL_PLAINTEXT` or `SASL_SSL`; several for several networks. `NAME=` before it names the "
        "listener for `meshctl listener`; else it is `listener-1` and so on.",
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
    listener_drain_s: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="Seconds for which connections go on when control has closed or changed their listener. Those "
        "whose proof counts no more end at once. See `docs/how-to/gateway-addresses.md`.",
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
        return self

    @model_validator(mode="after")
    def _users_have_one_origin(self) -> Self:
        if self.users_from_control and self.users_file is not None:
            raise ValueError("users_from_control: users come from control or from users_file; unset one of both")
        return self

    @model_validator(mode="after")
    def _clients_can_prove_who_they_are(self) -> Self:
        means = self.means
        for listener in self.listeners:
            means.check(listener)
        if self.users_file is not None and any(PASSWORDS & set(each.mechanisms) for each in self.listeners):
            read_users(self.users_file)
        return self

    @property
    def means(self) -> Means:
        """The means that this gateway has for its listeners."""
        has_users = self.users_file is not None or self.users_from_control
        return Means(
            self.tls is not None,
            self.tls_client_ca is not None,
            has_users,
            bool(self.token_issuers),
            self.allow_insecure,
        )

    @property
    def listeners(self) -> list[Listener]:
        """The listeners, with the addresses that their clients get."""
        rules = name_rules(self.principal_mapping_rules)
        asked = self.sasl_mechanisms, self.tls_client_auth, rules
        found = listeners(self.listen, self.advertised, self.node_ports, *asked)
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
        return Proofs(
            self.users_file, self.users_from_control, self.token_issuers, self, self.sasl_max_session_s or inf
        )
