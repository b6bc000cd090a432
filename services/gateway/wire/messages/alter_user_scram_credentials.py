"""AlterUserScramCredentials (key 51): SCRAM credentials are set or removed."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Kind, Struct, array, data, int8, int16, int32, message, string


@dataclass(slots=True)
class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


@dataclass(slots=True)
class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: Buffer = data()
    salted_password: Buffer = data()


@message(api_key=51, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class AlterUserScramCredentialsRequest(Struct):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@dataclass(slots=True)
class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@message(api_key=51, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class AlterUserScramCredentialsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
