"""AlterClientQuotas (key 49): quotas of users, client ids and addresses are set or removed."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, float64, int16, int32, message, string


@dataclass(slots=True)
class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


@dataclass(slots=True)
class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@dataclass(slots=True)
class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(api_key=49, kind=Kind.REQUEST, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class AlterClientQuotasRequest(Struct):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@dataclass(slots=True)
class EntryResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entity: list[EntityData] = array(EntityData)


@message(api_key=49, kind=Kind.RESPONSE, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class AlterClientQuotasResponse(Struct):
    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)
