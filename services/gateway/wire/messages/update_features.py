"""UpdateFeatures (key 57): features of the cluster are raised or lowered."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int8, int16, int32, message, string


@dataclass(slots=True)
class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)


@message(api_key=57, kind=Kind.REQUEST, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class UpdateFeaturesRequest(Struct):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


@dataclass(slots=True)
class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@message(api_key=57, kind=Kind.RESPONSE, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class UpdateFeaturesResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
