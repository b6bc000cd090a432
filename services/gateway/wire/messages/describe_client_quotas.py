"""DescribeClientQuotas (key 48): quotas of users, client ids and addresses."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, float64, int8, int16, int32, message, string


@dataclass(slots=True)
class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable_since=0)


@message(api_key=48, kind=Kind.REQUEST, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class DescribeClientQuotasRequest(Struct):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@dataclass(slots=True)
class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


@dataclass(slots=True)
class ValueData(Struct):
    key: str = string()
    value: float = float64()


@dataclass(slots=True)
class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(api_key=48, kind=Kind.RESPONSE, versions=(0, 1), flexible=1)
@dataclass(slots=True)
class DescribeClientQuotasResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entries: list[EntryData] | None = array(EntryData, nullable_since=0)
