"""CreateDelegationToken (key 38): a token with which others may act in a user's name."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, array, data, int16, int32, int64, message, string


@dataclass(slots=True)
class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


@message(api_key=38, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreateDelegationTokenRequest(Struct):
    owner_principal_type: str | None = string(since=3, nullable_since=3)
    owner_principal_name: str | None = string(since=3, nullable_since=3)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@message(api_key=38, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreateDelegationTokenResponse(Struct):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: Buffer = data()
    throttle_time_ms: int = int32()
