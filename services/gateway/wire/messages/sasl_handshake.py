"""SaslHandshake (key 17): client and broker agree on a mechanism."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, int16, message, string, strings


@message(api_key=17, kind=Kind.REQUEST, versions=(0, 1), flexible=None)
@dataclass(slots=True)
class SaslHandshakeRequest(Struct):
    mechanism: str = string()


@message(api_key=17, kind=Kind.RESPONSE, versions=(0, 1), flexible=None)
@dataclass(slots=True)
class SaslHandshakeResponse(Struct):
    error_code: int = int16()
    mechanisms: list[str] = strings()
