"""How connections to an upstream cluster are secured: the cluster's librdkafka properties as a value, without I/O.

Control refuses a cluster whose security the gateways can't serve, by the same check that gateways make when a table
arrives: what is registered is served. Names, defaults and precedence are librdkafka's. A property that asks for more
than the mesh serves (a CRL, say) is refused rather than ignored: no connection is less secure than its properties say.
Values may be references (`secret_references`); they are resolved when a connection is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import ClassVar, TypeVar

from mesh.secret_references import REFERENCE

CONNECTION_PREFIXES = ("broker.address.", "https.", "reconnect.backoff.", "sasl.", "socket.", "ssl.")
CONNECTION_NAMES = frozenset(
    {
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "security.protocol",
    }
)
SERVED_TLS_NAMES = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
MECHANISM_NAMES = ("sasl.mechanisms", "sasl.mechanism")
"""One property with two names."""
CERTIFICATE_NAMES = frozenset(name for name in SERVED_TLS_NAMES if name.startswith(("ssl.certificate.", "ssl.key.")))
"""A client's certificate and its key: one credential."""
CREDENTIAL_NAMES = frozenset({*MECHANISM_NAMES, *CERTIFICATE_NAMES, "sasl.username", "sasl.password"})
"""The properties that the credential of a client at a cluster may have."""
UNSECURED_TOKENS = "enable.sasl.oauthbearer.unsecure.jwt"
CLIENT_ID_NAMES = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
CLIENT_SECRET_NAMES = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")
SERVED_BEARER_NAMES = frozenset(
    {
        *CLIENT_ID_NAMES,
        *CLIENT_SECRET_NAMES,
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
    }
)
SERVED_KERBEROS_NAMES = frozenset(
    {
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",  # of a ticket that kinit would fetch; here it is fetched when needed
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
    }
)
SYSTEM_CA = "probe"
"""librdkafka's word for: look where this system keeps its authorities. So does an empty value."""
T = TypeVar("T")

BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Mechanism(Enum):
    """SASL mechanisms that are served."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    GSSAPI = "GSSAPI"
    """Needs the extra `gssapi`; the service that connects checks whether the extra is installed."""


class Protocol(Enum):
    """Values of `security.protocol`."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def encrypts(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class UnservedSecurityError(ValueError):
    """A cluster asks for what the mesh does not serve; `name` is the property. Says no value that may be secret."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Tls:
    """What TLS needs; empty where not set. A PEM text counts before a file of the same kind."""

    ca_location: str = ""
    ca_pem: str = field(default="", repr=False)
    certificate_location: str = ""
    certificate_pem: str = field(default="", repr=False)
    key_location: str = ""
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    verifies_broker: bool = True
    identifies_host: bool = True

    @property
    def has_certificate(self) -> bool:
        return bool(self.certificate_location or self.certificate_pem)


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """PLAIN or SCRAM."""

    mechanism: Mechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnsecuredTokenLogin:
    """OAUTHBEARER with a token that nobody signs, made from `sasl.oauthbearer.config`: for trials."""

    mechanism: ClassVar = Mechanism.OAUTHBEARER
    config: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IssuedTokenLogin:
    """OAUTHBEARER with a token that an issuer gives for a client's id and secret (`sasl.oauthbearer.method=oidc`)."""

    mechanism: ClassVar = Mechanism.OAUTHBEARER
    endpoint_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: str = ""
    ca_location: str = ""
    ca_pem: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ExchangedTokenLogin(IssuedTokenLogin):
    """OAUTHBEARER with a token that an issuer gives for the token of a client (RFC 8693)."""

    audience: str = ""
    subject_token: str = field(default="", repr=False)
    """The client's token; empty while it is not known."""


BearerLogin = UnsecuredTokenLogin | IssuedTokenLogin


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """GSSAPI. Without a keytab the process's own credentials count (KRB5_CLIENT_KTNAME, KRB5CCNAME)."""

    mechanism: ClassVar = Mechanism.GSSAPI
    service_name: str
    principal: str
    keytab: str = ""


Login = PasswordLogin | BearerLogin | KerberosLogin


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """`None` stands for: without."""

    tls: Tls | None = None
    login: Login | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ConnectionSecurity:
        """From a cluster's `connection_properties`; UnservedSecurityError names the property that can't be served."""
        said = {name: value for name, value in properties.items() if value.strip()}
        protocol = _choice(said, "security.protocol", {p.value: p for p in Protocol}, Protocol.PLAINTEXT)
        return cls(_tls(said) if protocol.encrypts else None, _login(said) if protocol.authenticates else None)


def shapes_connections(name: str) -> bool:
    """Whether the property counts for every connection to the cluster, the gateway's included."""
    return name in CONNECTION_NAMES or name.startswith(CONNECTION_PREFIXES)


def connection_properties(producer: Mapping[str, str], consumer: Mapping[str, str]) -> dict[str, str]:
    """Security and connection properties of a cluster, from both configurations; the producer's wins where they
    differ.
    """
    return {name: value for name, value in {**consumer, **producer}.items() if shapes_connections(name)}


def credential_properties(own: Mapping[str, str], credential: Mapping[str, str]) -> dict[str, str]:
    """The properties of a cluster with those of a client's credential in their place."""
    replaced = set(credential)
    if not replaced.isdisjoint(MECHANISM_NAMES):
        replaced.update(MECHANISM_NAMES)
    if not replaced.isdisjoint(CERTIFICATE_NAMES):
        replaced.update(CERTIFICATE_NAMES)
    return {**{name: value for name, value in own.items() if name not in replaced}, **credential}


def file_places(security: ConnectionSecurity) -> tuple[str, ...]:
    """The files that a connection is made with: certificates, keys, and those that references name."""
    places: list[str] = []
    for part in (security.tls, security.login):
        for each in () if part is None else fields(part):
            value = getattr(part, each.name)
            if not isinstance(value, str) or not value:
                continue
            reference = REFERENCE.fullmatch(value)
            if reference is not None and reference[1].startswith("file:"):
                places.append(reference[1].removeprefix("file:"))
            elif each.name.endswith("_location") and value != SYSTEM_CA:
                places.append(value)
    return tuple(places)


def served_home_properties(properties: dict[str, str]) -> dict[str, str]:
    """The properties of the home cluster, to which services connect directly.

    UnservedSecurityError names the property that can't be served.
    """
    for name in sorted(properties):
        if not shapes_connections(name):  # a misspelt security.protocol would mean: none
            raise UnservedSecurityError(name, "is no property of a connection (security.protocol, sasl.*, ssl.*)")
    if isinstance(ConnectionSecurity.of(properties).login, KerberosLogin):
        raise UnservedSecurityError(MECHANISM_NAMES[0], "GSSAPI is not served for the home cluster; use another")
    return properties


def _choice(said: Mapping[str, str], name: str, choices: Mapping[str, T], default: T) -> T:
    value = said.get(name)
    if value is None:
        return default
    if value.lower() not in choices:
        raise UnservedSecurityError(name, f"{value!r} is not served (served: {', '.join(choices)})")
    return choices[value.lower()]


def _tls(said: Mapping[str, str]) -> Tls:
    _only(said, "ssl.", SERVED_TLS_NAMES)
    tls = Tls(
        ca_location=said.get("ssl.ca.location", ""),
        ca_pem=said.get("ssl.ca.pem", ""),
        certificate_location=said.get("ssl.certificate.location", ""),
        certificate_pem=said.get("ssl.certificate.pem", ""),
        key_location=said.get("ssl.key.location", ""),
        key_pem=said.get("ssl.key.pem", ""),
        key_password=said.get("ssl.key.password", ""),
        verifies_broker=_choice(said, "enable.ssl.certificate.verification", BOOLEANS, True),
        identifies_host=_choice(said, "ssl.endpoint.identification.algorithm", {"https": True, "none": False}, True),
    )
    for name in ("ssl.key.location", "ssl.key.pem"):
        if name in said and not tls.has_certificate:
            reason = "a key without its certificate; set ssl.certificate.location or ssl.certificate.pem too"
            raise UnservedSecurityError(name, reason)
    return tls


def _login(said: Mapping[str, str]) -> Login:
    mechanism = _mechanism(said)
    match mechanism:
        case Mechanism.OAUTHBEARER:
            return _bearer(said)
        case Mechanism.GSSAPI:
            return _kerberos(said)
    username = _needed(said, ("sasl.username",), mechanism.value)
    return PasswordLogin(mechanism, username, _needed(said, ("sasl.password",), mechanism.value))


def _mechanism(said: Mapping[str, str]) -> Mechanism:
    served = {mechanism.value: mechanism for mechanism in Mechanism}
    names = [name for name in MECHANISM_NAMES if name in said]
    for name in names:
        if said[name] not in served:
            raise UnservedSecurityError(name, f"{said[name]!r} is not served (served: {', '.join(served)})")
    return served[_one_of(said, MECHANISM_NAMES)] if names else Mechanism.GSSAPI


def _bearer(said: Mapping[str, str]) -> BearerLogin:
    _only(said, "sasl.oauthbearer.", SERVED_BEARER_NAMES)
    method = _choice(said, "sasl.oauthbearer.method", {"default": "default", "oidc": "oidc"}, "default")
    if method == "default":
        if not _choice(said, UNSECURED_TOKENS, BOOLEANS, False):
            reason = (
                "must be true for tokens that nobody signs; for those of an issuer set sasl.oauthbearer.method=oidc"
            )
            raise UnservedSecurityError(UNSECURED_TOKENS, reason)
        return UnsecuredTokenLogin(_needed(said, ("sasl.oauthbearer.config",), "tokens that nobody signs"))
    if _choice(said, UNSECURED_TOKENS, BOOLEANS, False):
        raise UnservedSecurityError(UNSECURED_TOKENS, "and sasl.oauthbearer.method=oidc exclude each other")
    _choice(said, "sasl.oauthbearer.grant.type", {"client_credentials": None}, None)
    url = _needed(said, ("sasl.oauthbearer.token.endpoint.url",), "sasl.oauthbearer.method=oidc")
    if not url.lower().startswith("https://") and not REFERENCE.fullmatch(url):
        reason = "the client's secret is sent there: only https:// is served"
        raise UnservedSecurityError("sasl.oauthbearer.token.endpoint.url", reason)
    _only(said, "https.", frozenset({"https.ca.location", "https.ca.pem"}))
    return IssuedTokenLogin(
        endpoint_url=url,
        client_id=_needed(said, CLIENT_ID_NAMES, "sasl.oauthbearer.method=oidc"),
        client_secret=_needed(said, CLIENT_SECRET_NAMES, "sasl.oauthbearer.method=oidc"),
        scope=said.get("sasl.oauthbearer.scope", ""),
        extensions=said.get("sasl.oauthbearer.extensions", ""),
        ca_location=said.get("https.ca.location", ""),
        ca_pem=said.get("https.ca.pem", ""),
    )


def _kerberos(said: Mapping[str, str]) -> KerberosLogin:
    if "sasl.kerberos.kinit.cmd" in said:
        reason = "no command is run for a cluster: leave it out, the keytab is read without one"
        raise UnservedSecurityError("sasl.kerberos.kinit.cmd", reason)
    _only(said, "sasl.kerberos.", SERVED_KERBEROS_NAMES)
    return KerberosLogin(
        service_name=said.get("sasl.kerberos.service.name", "kafka"),
        principal=said.get("sasl.kerberos.principal", ""),
        keytab=said.get("sasl.kerberos.keytab", ""),
    )


def _only(said: Mapping[str, str], prefix: str, served: frozenset[str]) -> None:
    for name in sorted(said):
        if name.startswith(prefix) and name not in served:
            raise UnservedSecurityError(name, f"is not served (served: {', '.join(sorted(served))})")


def _needed(said: Mapping[str, str], names: tuple[str, ...], wanted_for: str) -> str:
    """The value of a property that has to be set, by any of its names."""
    if not any(name in said for name in names):
        raise UnservedSecurityError(names[0], f"must be set for {wanted_for}")
    return _one_of(said, names)


def _one_of(said: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The value of a property with several names, at least one of which is set."""
    first, *others = [name for name in names if name in said]
    for other in others:
        if said[other] != said[first]:
            reason = f"{other}, another name of the same property, says something else; leave one of them out"
            raise UnservedSecurityError(first, reason)
    return said[first]
