"""The server's side of OAUTHBEARER (RFC 7628): a bearer token of an issuer that the settings name.

If the token is not valid, RFC 7628 asks for a message with the reason, which the client acknowledges. Then the login
fails. Neither the message nor the log shows the token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final

from mesh.connection_security import Mechanism
from services.gateway.authentication.mechanisms import Challenge, Proved, RejectedError
from services.gateway.authentication.principal import Principal

_SEPARATOR: Final = "\x01"
_INITIAL: Final = re.compile(rf"n,(?:a=(?P<identity>[^,{_SEPARATOR}]+))?,{_SEPARATOR}(?P<pairs>.*){_SEPARATOR}", re.S)
INVALID: Final = "invalid_token"


class TokenRefusedError(Exception):
    """The token is not valid; `reason` is for the log, `scope` is what the token would need."""

    def __init__(self, reason: str, status: str = INVALID, scope: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.scope = scope


TokenCheck = Callable[[str], Awaitable[tuple[Principal, float]]]
"""The principal of a token, and when the token expires, in seconds since 1970. Raises TokenRefusedError."""


class BearerServer:
    """One token, and another to acknowledge a refusal."""

    def __init__(self, check: TokenCheck) -> None:
        self._check = check
        self._refused: RejectedError | None = None

    async def respond(self, token: bytes) -> Challenge | Proved:
        if self._refused is not None:
            raise self._refused
        said = _INITIAL.fullmatch(token.decode("utf-8", "replace"))
        if said is None:
            raise RejectedError("the message is not as RFC 7628 has it", "Invalid OAUTHBEARER client first message")
        pairs = (pair.partition("=") for pair in said["pairs"].split(_SEPARATOR))
        authorization = [value for key, _, value in pairs if key == "auth"]
        if len(authorization) != 1:
            text = "Invalid OAUTHBEARER client first message: 'auth' not specified"
            raise RejectedError("the message has no value `auth`, or several", text)
        scheme, _, bearer = authorization[0].partition(" ")
        if scheme.lower() != "bearer":
            text = "Invalid scheme in OAUTHBEARER client first message"
            raise RejectedError("the value `auth` is no bearer token", text)
        try:
            principal, expires_at = await self._check(bearer.strip())
        except TokenRefusedError as error:
            told = {"status": error.status} | ({"scope": error.scope} if error.scope else {})
            answer = json.dumps(told, separators=(",", ":"))
            self._refused = RejectedError(error.reason, answer)
            return Challenge(answer.encode(), error.reason)
        if said["identity"] not in (None, principal.name):
            text = (
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
            raise RejectedError("another authorization id", text)
        return Proved(principal, b"", expires_at, bearer.strip())


PROOF: Final = Mechanism.OAUTHBEARER.value
