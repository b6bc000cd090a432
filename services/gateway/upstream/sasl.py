"""How the gateway logs in to a broker: the conversation, without I/O.

Theory of operation
1. `Login` gives the next request and takes the answer, until no request is left:
   ApiVersions (which SaslAuthenticate does it speak) -> SaslHandshake v1 -> SaslAuthenticate, once for each token.
   A login that renews an earlier login begins at SaslHandshake: brokers allow no other request once the login is over.
2. A mechanism makes the tokens and checks those of the broker. SCRAM proves both ways: a broker that does not know the
   password is refused too. PLAIN and SCRAM are here, OAUTHBEARER in `bearer`, GSSAPI in `kerberos`.
3. The costly part of SCRAM is the salted password. A broker keeps one salt for each user, so it is computed once and
   kept with the credentials. `Login.next` may take milliseconds: call it from a worker thread.
4. No error carries a password or a token, also not when a broker sends it back.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from mesh.connection_security import Mechanism
from mesh.scram import SCRAM_HASHES
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from services.gateway.wire.schema import Struct

HANDSHAKE_VERSION: Final = 1
"""Version 0 goes on with tokens outside of frames; brokers speak 1 since Kafka 1.0."""
AUTHENTICATE_HIGHEST: Final = 2
MIN_ITERATIONS: Final = 4096
"""The least by RFC 7677, and of Kafka's own clients: fewer iterations would make a password easier to guess."""
MAX_ITERATIONS: Final = 1_000_000
"""Most that a broker may make the gateway compute: about a second."""
NONCE_BYTES: Final = 24
MAX_SHOWN: Final = 300
"""Characters of a broker's own words in our reason."""


class LoginRefusedError(Exception):
    """The broker refuses the login, or can't prove that it knows the password. The message is fit for a log."""


class Conversation(Protocol):
    """The conversation of a mechanism."""

    def first(self) -> bytes:
        """The first token."""

    def next(self, challenge: bytes) -> bytes | None:
        """The token that answers the broker's; None when no token is left and the broker is accepted."""


class Credentials(Protocol):
    """The gateway's resolved credentials. All connections of a cluster share them."""

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def secret(self) -> str:
        """The text that no error may show; empty if the broker could not send it back."""

    def conversation(self, host: str) -> Conversation:
        """The conversation with the broker of this host name."""


@dataclass(slots=True)
class Password:
    """For PLAIN and SCRAM."""

    mechanism: Mechanism
    username: str = field(repr=False)
    secret: str = field(repr=False)
    _salted: dict[tuple[bytes, int], bytes] = field(default_factory=dict, repr=False)

    def conversation(self, host: str) -> Conversation:
        return Plain(self) if self.mechanism is Mechanism.PLAIN else Scram(self)

    def salted_password(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted.get((salt, iterations))
        if known is None:
            name = SCRAM_HASHES[self.mechanism]
            known = hashlib.pbkdf2_hmac(name, self.secret.encode(), salt, iterations)
            self._salted = {(salt, iterations): known}
        return known


class Step(NamedTuple):
    """A request to send, and what its answer is."""

    message: Struct
    version: int
    answer: type[Struct]


class Plain:
    """PLAIN (RFC 4616)."""

    def __init__(self, credentials: Password) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        return f"\0{self._credentials.username}\0{self._credentials.secret}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        return None


class Scram:
    """SCRAM (RFC 5802, 7677) without channel binding. Names are escaped but not normalised, as Kafka does it."""

    def __init__(self, credentials: Password, nonce: str | None = None) -> None:
        self._credentials = credentials
        self._hash = SCRAM_HASHES[credentials.mechanism]
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._client_first = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None
        """The signature that the broker must prove itself with, known once its challenge is answered."""

    def first(self) -> bytes:
        return f"n,,{self._client_first}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._signature is None:
            return self._proof(challenge)
        self._verify(_attributes(challenge), self._signature)
        return None

    def _proof(self, server_first: bytes) -> bytes:
        said = _attributes(server_first)
        nonce, salt, iterations = said.get("r", ""), _base64(said.get("s", "")), said.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise LoginRefusedError("the broker's nonce does not continue ours")
        if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise LoginRefusedError(
                f"the broker asks for {iterations[:20]!r} iterations (served: {MIN_ITERATIONS} to {MAX_ITERATIONS})"
            )
        salted = self._credentials.salted_password(salt, int(iterations))
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = b",".join((self._client_first.encode(), server_first, without_proof.encode()))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, said: dict[str, str], expected: bytes) -> None:
        if "e" in said:
            raise LoginRefusedError(f"the broker says {said['e'][:MAX_SHOWN]!r}")
        if not hmac.compare_digest(_base64(said.get("v", "")), expected):
            raise LoginRefusedError("the broker could not prove that it knows the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise LoginRefusedError("the broker's SCRAM message is not text") from None
    return {name: value for name, separator, value in (part.partition("=") for part in parts) if separator}


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise LoginRefusedError("the broker's SCRAM message is not base64 where it must be") from None


class Login:
    """One login on one connection: `begin`, then `next` with each answer until it gives None."""

    def __init__(self, credentials: Credentials, host: str, authenticate_version: int | None = None) -> None:
        """`authenticate_version` as an earlier login on this connection has found it."""
        self.authenticate_version = authenticate_version
        self.lifetime_s = 0.0
        """The time after which the broker wants a new login; 0: never. Known when the login is done."""
        self._credentials = credentials
        self._conversation = credentials.conversation(host)

    @property
    def mechanism(self) -> str:
        return self._credentials.mechanism.value

    def begin(self) -> Step:
        if self.authenticate_version is None:
            return Step(ApiVersionsRequest(), 0, ApiVersionsResponse)
        return self._handshake()

    def next(self, answer: Struct) -> Step | None:
        """The request to send after this answer; None when the login is done. Raises LoginRefusedError."""
        match answer:
            case ApiVersionsResponse():
                self.authenticate_version = _authenticate_version(answer)
                return self._handshake()
            case SaslHandshakeResponse():
                if answer.error_code:
                    offered = ", ".join(answer.mechanisms) or "none"
                    raise LoginRefusedError(f"{self.mechanism} is not offered (offered: {offered[:MAX_SHOWN]})")
                return self._authenticate(self._conversation.first())
            case SaslAuthenticateResponse():
                if answer.error_code:
                    raise LoginRefusedError(self._harmless(answer.error_message or f"error {answer.error_code}"))
                token = self._conversation.next(bytes(answer.auth_bytes))
                if token is not None:
                    return self._authenticate(token)
                self.lifetime_s = answer.session_lifetime_ms / 1000
                return None
        raise TypeError(f"{type(answer).__name__} has no place in a login")

    def _handshake(self) -> Step:
        return Step(SaslHandshakeRequest(self.mechanism), HANDSHAKE_VERSION, SaslHandshakeResponse)

    def _authenticate(self, token: bytes) -> Step:
        version = self.authenticate_version or 0
        return Step(SaslAuthenticateRequest(token), version, SaslAuthenticateResponse)

    def _harmless(self, words: str) -> str:
        secret = self._credentials.secret
        shown = (words.replace(secret, "(secret)") if secret else words)[:MAX_SHOWN]
        return "".join(c if c.isprintable() else " " for c in shown)


def _authenticate_version(answer: ApiVersionsResponse) -> int:
    spoken = {api.api_key: api for api in answer.api_keys}
    handshake, authenticate = spoken.get(ApiKey.SASL_HANDSHAKE), spoken.get(ApiKey.SASL_AUTHENTICATE)
    if handshake is None or handshake.max_version < HANDSHAKE_VERSION or authenticate is None:
        raise LoginRefusedError("the broker is older than Kafka 1.0: it does not speak SaslAuthenticate")
    return min(AUTHENTICATE_HIGHEST, authenticate.max_version)
