"""ApiVersions (key 18): what the other side can do. Its response header is always version 0."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int16, int32, int64, message, string


@message(api_key=18, kind=Kind.REQUEST, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ApiVersionsRequest(Struct):
    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)
    cluster_id: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The cluster and the node that the client means to reach (KIP-1242)."""
    node_id: int = int32(since=5, default=-1, ignorable=True)


@dataclass(slots=True)
class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(slots=True)
class SupportedFeatureKey(Struct):
    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


@dataclass(slots=True)
class FinalizedFeatureKey(Struct):
    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


@message(api_key=18, kind=Kind.RESPONSE, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class ApiVersionsResponse(Struct):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, ignorable=True, tag=0)
    finalized_features_epoch: int = int64(since=3, default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, ignorable=True, tag=2)
    zk_migration_ready: bool = boolean(since=3, ignorable=True, tag=3)
