"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, message, string


@dataclass(slots=True)
class UserName(Struct):
    name: str = string()


@message(api_key=50, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeUserScramCredentialsRequest(Struct):
    users: list[UserName] | None = array(UserName, nullable_since=0)


@dataclass(slots=True)
class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


@dataclass(slots=True)
class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(api_key=50, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeUserScramCredentialsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
