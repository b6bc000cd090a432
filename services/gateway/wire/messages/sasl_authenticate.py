"""SaslAuthenticate (key 36): the tokens of that mechanism."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, data, int16, int64, message, string


@message(api_key=36, kind=Kind.REQUEST, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class SaslAuthenticateRequest(Struct):
    auth_bytes: Buffer = data()


@message(api_key=36, kind=Kind.RESPONSE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class SaslAuthenticateResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    auth_bytes: Buffer = data()
    session_lifetime_ms: int = int64(since=1, ignorable=True)
