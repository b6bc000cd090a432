"""DescribeDelegationToken (key 41): the tokens of these owners."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, array, data, int16, int32, int64, message, string


@dataclass(slots=True)
class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string()
    principal_name: str = string()


@message(api_key=41, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DescribeDelegationTokenRequest(Struct):
    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable_since=0)


@dataclass(slots=True)
class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


@dataclass(slots=True)
class DescribedDelegationToken(Struct):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: Buffer = data()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@message(api_key=41, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class DescribeDelegationTokenResponse(Struct):
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
