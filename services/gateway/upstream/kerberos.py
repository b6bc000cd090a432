"""GSSAPI (RFC 4752): a login with a Kerberos ticket. Needs the extra `gssapi`, which is built against MIT krb5."""

import importlib
from dataclasses import dataclass
from typing import Any, Final

from mesh.connection_security import Mechanism
from services.gateway.upstream.sasl import MAX_SHOWN, Conversation, LoginRefusedError

NO_SECURITY_LAYER: Final = 1
"""Bit of the layers that a broker offers after the ticket. If later bytes need protection, TLS gives it."""


class KerberosUnavailableError(Exception):
    """The library or the credentials are missing; the message gives the reason."""


def library() -> Any:
    """The module `gssapi`. Raises KerberosUnavailableError."""
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as error:  # the second: MIT krb5 itself is missing
        reason = f"GSSAPI needs the extra 'gssapi' (pip install 'kafka-mesh[gateway,gssapi]'): {error}"
        raise KerberosUnavailableError(reason) from None


@dataclass(frozen=True, slots=True)
class Kerberos:
    """Credentials: a principal whose ticket is fetched and renewed by the library, from its keytab."""

    service_name: str
    principal: str
    keytab: str

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism.GSSAPI

    @property
    def secret(self) -> str:
        return ""

    def conversation(self, host: str) -> Conversation:
        return Gssapi(self, host)


class Gssapi:
    """The conversation: tokens until both sides know each other, then one message that asks for no security layer."""

    def __init__(self, credentials: Kerberos, host: str) -> None:
        self._gssapi = library()
        self._who = credentials
        self._host = host
        self._context: Any = None
        self._told = False

    def first(self) -> bytes:
        try:
            self._context = self._new_context()
        except self._gssapi.exceptions.GSSError as error:
            raise LoginRefusedError(f"no ticket for {self._service}: {_words(error)}") from None
        return self._step(None)

    def next(self, challenge: bytes) -> bytes | None:
        if not self._context.complete:
            return self._step(challenge)
        if self._told:
            return None
        self._told = True
        try:
            offer = self._context.unwrap(challenge).message
            if len(offer) != 4 or not offer[0] & NO_SECURITY_LAYER:
                raise LoginRefusedError("the broker insists on a security layer of GSSAPI; TLS is served in its place")
            # No layer, so no largest message; no name, so the broker takes the ticket's.
            wrapped: bytes = self._context.wrap(bytes((NO_SECURITY_LAYER, 0, 0, 0)), False).message
        except self._gssapi.exceptions.GSSError as error:
            raise LoginRefusedError(f"no agreement on a security layer: {_words(error)}") from None
        return wrapped

    @property
    def _service(self) -> str:
        return f"{self._who.service_name}@{self._host}"

    def _new_context(self) -> Any:
        gssapi = self._gssapi
        store = (
            {"client_keytab": self._who.keytab, "ccache": f"MEMORY:{self._who.keytab}"} if self._who.keytab else None
        )
        name = gssapi.Name(self._who.principal, gssapi.NameType.kerberos_principal) if self._who.principal else None
        credentials = gssapi.Credentials(usage="initiate", name=name, store=store) if store or name else None
        return gssapi.SecurityContext(
            name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )

    def _step(self, token: bytes | None) -> bytes:
        try:
            answer: bytes | None = self._context.step(token)
        except self._gssapi.exceptions.GSSError as error:
            raise LoginRefusedError(f"no ticket for {self._service}: {_words(error)}") from None
        return answer or b""


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_SHOWN]
