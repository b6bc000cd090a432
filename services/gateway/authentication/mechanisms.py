"""The server's side of PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677), with the texts of Kafka's brokers.

A mechanism takes one token of the client at a time and returns a `Challenge`, or `Proved` at the end. It raises
`RejectedError` with the text for the client, which never tells whether the user exists. SCRAM for an unknown user goes
on to the end with a decoy of a verifier, and then fails as with a wrong password.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from mesh.connection_security import Mechanism
from mesh.scram import Verifier
from services.gateway.authentication.principal import Principal

NONCE_BYTES: Final = 24
MAX_NAME_CHARACTERS: Final = 255
OTHER_IDENTITY: Final = "Authentication failed: Client requested an authorization id that is different from username"
_VALUE: Final = r"[^\x00,]+"
_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<identity>{_VALUE}))?,)"
    rf"(?P<bare>n=(?P<name>{_VALUE}),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?:,[A-Za-z]+=[^\x00,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPED: Final = re.compile(r"=(?!2C|3D)")


class RejectedError(Exception):
    """The client has not proved who it is. `reason` is for the log, `text` for the client; neither has a secret."""

    def __init__(self, reason: str, text: str = "") -> None:
        """Without a text the client gets the general text of its mechanism."""
        super().__init__(reason)
        self.reason = reason
        self.text = text


class UnansweredError(RejectedError):
    """The gateway can't tell whether the proof is right. The client gets no answer, so that it tries again."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to answer this token."""

    token: bytes
    refused: str = ""
    """For the log: why the token refuses the client, whose answer ends the login. Empty: the login goes on."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The client is who it says, until the proof expires."""

    principal: Principal
    token: bytes = b""
    """The last token for the client."""
    expires_at: float = inf
    """In seconds since 1970."""
    bearer: str | None = field(default=None, repr=False)
    """The client's token, where the login was one."""


class MechanismServer(Protocol):
    """The server's side of one login."""

    async def respond(self, token: bytes) -> Challenge | Proved:
        """Takes the next token. Raises RejectedError."""


class Verifiers(Protocol):
    """The users' verifiers."""

    def find(self, name: str, mechanism: Mechanism) -> Verifier | None:
        """The user's verifier; None if there is none. Raises UnansweredError if the users are not known yet."""

    def decoy(self, name: str, mechanism: Mechanism) -> Verifier:
        """The verifier that an unknown user appears to have: no password is right."""


Check = Callable[[Verifier, str], Awaitable[bool]]
"""Whether a password is the verifier's. It takes milliseconds of a core, so it runs outside of the event loop."""


class PlainServer:
    """PLAIN: one token with name and password."""

    def __init__(self, users: Verifiers, check: Check) -> None:
        self._users = users
        self._check = check

    async def respond(self, token: bytes) -> Challenge | Proved:
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise RejectedError("the token is not text") from None
        if len(parts) != 3:
            raise RejectedError(
                "the token does not have three parts",
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}",
            )
        identity, name, password = parts
        if not name:
            raise RejectedError("no user name", "Authentication failed: username not specified")
        if not password:
            raise RejectedError("no password", "Authentication failed: password not specified")
        if identity not in ("", name):
            raise RejectedError("another authorization id", OTHER_IDENTITY)
        found = self._find(name)
        is_right = await self._check(found or self._users.decoy(name, Mechanism.SCRAM_SHA_256), password)
        if found is None or not is_right or self._find(name) != found:  # the user may have changed meanwhile
            raise RejectedError("unknown user or wrong password", "Authentication failed: Invalid username or password")
        return Proved(Principal(name, Mechanism.PLAIN.value))

    def _find(self, name: str) -> Verifier | None:
        kinds = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
        return next((known for kind in kinds if (known := self._users.find(name, kind)) is not None), None)


class ScramServer:
    """SCRAM without channel binding: two tokens. The password never comes."""

    def __init__(self, mechanism: Mechanism, users: Verifiers, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._users = users
        self._own_nonce = nonce or base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self._name = ""
        self._binding = b""
        self._nonce = ""
        self._exchanged = b""
        """The messages so far; empty before the first."""
        self._verifier: Verifier | None = None

    async def respond(self, token: bytes) -> Challenge | Proved:
        return self._final(token) if self._exchanged else self._first(token)

    def _first(self, token: bytes) -> Challenge:
        said = _FIRST.fullmatch(_text(token))
        if said is None:
            raise RejectedError("the first message is not as RFC 5802 has it, or asks for channel binding")
        if _ESCAPED.search(said["name"]):
            raise RejectedError("the name has an escape that RFC 5802 does not know")
        self._name = said["name"].replace("=2C", ",").replace("=3D", "=")
        if len(self._name) > MAX_NAME_CHARACTERS:
            raise RejectedError("the name is too long")
        if "tokenauth=true" in said["extensions"]:
            raise RejectedError("delegation tokens are not served")
        if said["identity"] is not None and said["identity"].replace("=2C", ",").replace("=3D", "=") != self._name:
            raise RejectedError("another authorization id", OTHER_IDENTITY)
        found = self._users.find(self._name, self._mechanism)
        verifier = self._verifier = found or self._users.decoy(self._name, self._mechanism)
        self._binding = said["header"].encode()
        self._nonce = said["nonce"] + self._own_nonce
        salt = base64.b64encode(verifier.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={verifier.iterations}"
        self._exchanged = f"{said['bare']},{challenge},".encode()
        return Challenge(challenge.encode())

    def _final(self, token: bytes) -> Proved:
        verifier = self._verifier
        said = _FINAL.fullmatch(_text(token))
        if said is None or verifier is None:
            raise RejectedError("the final message is not as RFC 5802 has it")
        # As on brokers: librdkafka before 2.6.1 says its own nonce once more before that of the login.
        if not said["nonce"].endswith(self._nonce):
            raise RejectedError("the nonce of the final message is not that of the login")
        binding, proof = _base64(said["binding"]), _base64(said["proof"])
        if binding != self._binding:
            raise RejectedError("the channel binding of the final message is not that of the first")
        exchanged = self._exchanged + said["unproved"].encode()
        is_proved = verifier.is_proved_by(proof, exchanged)
        # a decoy is no user's verifier, and that of the first message may be no user's any more
        if not is_proved or self._users.find(self._name, self._mechanism) != verifier:
            raise RejectedError("unknown user or wrong password")
        principal = Principal(self._name, self._mechanism.value)
        return Proved(principal, b"v=" + base64.b64encode(verifier.signature(exchanged)))


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        raise RejectedError("the message is not text") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise RejectedError("the message is not base64 where it must be") from None
