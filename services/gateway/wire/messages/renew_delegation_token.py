"""RenewDelegationToken (key 39): a token lives longer."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, data, int16, int32, int64, message


@message(api_key=39, kind=Kind.REQUEST, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class RenewDelegationTokenRequest(Struct):
    hmac: Buffer = data()
    renew_period_ms: int = int64()


@message(api_key=39, kind=Kind.RESPONSE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class RenewDelegationTokenResponse(Struct):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
