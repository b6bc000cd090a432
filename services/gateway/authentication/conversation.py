"""The server's side of a SASL login on one connection, without I/O.

Theory of operation
1. Stages as on a broker: ApiVersions (may be left out), SaslHandshake, then tokens. After SaslHandshake v1 each token
   is a SaslAuthenticate. After v0 a frame is the bare token, and so is the answer.
2. Any other request before the end closes the connection, as brokers do (ILLEGAL_SASL_STATE has no answer there).
3. Each failure has two texts: `reason` for the log, and the text for the client, which is Kafka's. A failed login by
   bare tokens has no answer: its protocol has no room for errors.
4. A login may be renewed (KIP-368): by the same mechanism, with the same principal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final

from services.gateway.authentication.mechanisms import (
    Challenge,
    MechanismServer,
    Proved,
    RejectedError,
    UnansweredError,
)
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.codec import decode_prefix
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.schema import Struct

MOST_GREETINGS: Final = 3
"""ApiVersions before the handshake: a client asks again if the gateway lacks the version of the first."""
MOST_TOKENS: Final = 8
"""Tokens of one login; no mechanism here needs more than two."""
HANDSHAKE_VERSIONS: Final = range(2)
AUTHENTICATE_VERSIONS: Final = range(3)
UNSUPPORTED: Final = "unsupported"
"""In metrics, for all mechanisms that are not served: clients can't make up series."""


class Stage(Enum):
    """The requests that the client may send next."""

    HANDSHAKE = auto()
    """ApiVersions or SaslHandshake."""
    TOKENS = auto()
    """SaslAuthenticate."""
    BARE_TOKENS = auto()
    """Tokens without a header."""
    OVER = auto()
    """The login has succeeded or failed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request or token, and the end of the login if it is over."""

    answer: Struct | bytes | None = None
    """A bare token is bytes; None: no answer."""
    proved: Proved | None = None
    failure: str | None = None
    """For the log. The connection ends after the answer."""
    refused: str = ""
    """For the log. The client hears that it is refused, and its next token ends the login: many clients just leave."""


@dataclass(frozen=True, slots=True)
class SaslPolicy:
    """How clients of a listener log in."""

    mechanisms: Mapping[str, Callable[[], MechanismServer]]
    """By name, in the order of the answer to SaslHandshake."""
    longest_session_s: float = inf
    """The time after which a client must log in again."""


class Conversation:
    """One login. `before` is the login that it renews."""

    def __init__(
        self, policy: SaslPolicy, before: Proved | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.stage = Stage.HANDSHAKE
        self.mechanism = UNSUPPORTED
        """The mechanism, as metrics name it."""
        self.is_counted = False
        """Whether its failure is counted and logged."""
        self._policy = policy
        self._before = before
        self._clock = clock
        self._server: MechanismServer | None = None
        self._greetings = 0
        self._tokens = 0

    @property
    def renews(self) -> bool:
        return self._before is not None

    def greeted(self) -> str | None:
        """The client asks for ApiVersions: the reason why it may not, or None."""
        self._greetings += 1
        if self.stage is Stage.HANDSHAKE and not self.renews and self._greetings <= MOST_GREETINGS:
            return None
        self.stage = Stage.OVER
        return "an unexpected request during the log-in: ApiVersions"

    async def requested(self, header: RequestHeader, frame: Buffer) -> Reply:
        """A request other than ApiVersions."""
        try:
            if self.stage is Stage.HANDSHAKE and header.api_key == ApiKey.SASL_HANDSHAKE:
                return self._handshake(header, frame)
            if self.stage is Stage.TOKENS and header.api_key == ApiKey.SASL_AUTHENTICATE:
                return await self._authenticate(header, frame)
        except WireError as error:
            return self._failed(f"a request of the log-in that can't be read: {error}")
        return self._failed(f"an unexpected request during the log-in: {api_name(header.api_key)}")

    async def token(self, token: bytes) -> Reply:
        """A token without a header."""
        said = await self._next(token)
        if isinstance(said, RejectedError):
            return self._failed(said.reason)
        if isinstance(said, Challenge):
            return Reply(said.token, refused=said.refused)
        self.stage = Stage.OVER
        return Reply(said.token, said)

    def _handshake(self, header: RequestHeader, frame: Buffer) -> Reply:
        if header.api_version not in HANDSHAKE_VERSIONS or (self.renews and header.api_version == 0):
            return self._failed(f"SaslHandshake v{header.api_version} is not served here")
        message, _ = decode_prefix(SaslHandshakeRequest, header.api_version, frame, header.body_offset)
        offered = list(self._policy.mechanisms)
        make = self._policy.mechanisms.get(message.mechanism)
        if make is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            failure = "the client asks for a mechanism that this listener does not offer"
            return self._failed(failure, SaslHandshakeResponse(code, offered))
        self.mechanism = message.mechanism
        if self._before is None or self._before.principal.proof == message.mechanism:
            self._server = make()  # otherwise the next token hears why there is none
        self.stage = Stage.TOKENS if header.api_version else Stage.BARE_TOKENS
        return Reply(SaslHandshakeResponse(0, offered))

    async def _authenticate(self, header: RequestHeader, frame: Buffer) -> Reply:
        if header.api_version not in AUTHENTICATE_VERSIONS:
            return self._failed(f"SaslAuthenticate v{header.api_version} is not served")
        message, _ = decode_prefix(SaslAuthenticateRequest, header.api_version, frame, header.body_offset)
        said = await self._next(bytes(message.auth_bytes))
        if isinstance(said, UnansweredError):
            return self._failed(said.reason)
        if isinstance(said, RejectedError):
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return self._failed(said.reason, SaslAuthenticateResponse(code, said.text or self._general_text()))
        if isinstance(said, Challenge):
            return Reply(SaslAuthenticateResponse(0, None, said.token), refused=said.refused)
        self.stage = Stage.OVER
        lifetime_s = self.lifetime_s(said)
        lifetime_ms = 0 if lifetime_s == inf else int(lifetime_s * 1000)
        return Reply(SaslAuthenticateResponse(0, None, said.token, lifetime_ms), said)

    async def _next(self, token: bytes) -> Challenge | Proved | RejectedError:
        self._tokens += 1
        before = self._before
        if before is not None and self._server is None:
            text = (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{before.principal.proof}'"
            )
            return RejectedError("the client renews its log-in by another mechanism", text)
        if self._server is None or self._tokens > MOST_TOKENS:
            return RejectedError("too many tokens")
        try:
            said = await self._server.respond(token)
        except RejectedError as rejected:
            return rejected
        if isinstance(said, Proved) and self.lifetime_s(said) <= 0:
            return RejectedError("the proof has expired")
        if isinstance(said, Proved) and before is not None and str(before.principal) != str(said.principal):
            text = f"Cannot change principals during re-authentication from {_dotted(before)}: {_dotted(said)}"
            return RejectedError("the client renews its log-in as another principal", text)
        return said

    def lifetime_s(self, proved: Proved) -> float:
        """The seconds after which this login must be renewed."""
        return min(self._policy.longest_session_s, proved.expires_at - self._clock())

    def _general_text(self) -> str:
        what = "re-authentication" if self.renews else "authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self.mechanism}"

    def _failed(self, reason: str, answer: Struct | None = None) -> Reply:
        self.stage = Stage.OVER
        return Reply(answer, failure=reason)


def _dotted(proved: Proved) -> str:
    return f"{proved.principal.kind}.{proved.principal.name}"
