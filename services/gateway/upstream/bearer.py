"""OAUTHBEARER (RFC 7628): a login with a token."""

from dataclasses import dataclass
from typing import Final

from mesh.bearer_tokens import BearerToken
from mesh.connection_security import Mechanism
from services.gateway.upstream.sasl import Conversation, LoginRefusedError

SEPARATOR: Final = "\x01"


@dataclass(frozen=True, slots=True)
class Bearer:
    """Credentials that consist of a token."""

    token: BearerToken

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism.OAUTHBEARER

    @property
    def secret(self) -> str:
        return self.token.value

    def conversation(self, host: str) -> Conversation:
        return OAuthBearer(self.token)


class OAuthBearer:
    """The conversation: one message. A broker that refuses the token answers with the reason, and waits for an empty
    reply. Then it fails the login with a message of its own.
    """

    def __init__(self, token: BearerToken) -> None:
        self._token = token
        self._refused = False

    def first(self) -> bytes:
        told = [f"auth=Bearer {self._token.value}", *(f"{k}={v}" for k, v in self._token.extensions.items())]
        return SEPARATOR.join(["n,,", *told, SEPARATOR]).encode()

    def next(self, challenge: bytes) -> bytes | None:
        if not challenge and not self._refused:
            return None
        if self._refused:
            raise LoginRefusedError("the broker refused the token, and then did not end the login")
        self._refused = True
        return SEPARATOR.encode()
