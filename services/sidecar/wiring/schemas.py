"""Makes the formats with schemas from settings: the registry, its cache, and the makers of codecs."""

from functools import partial

from mesh.schemas.schema import SchemaKind
from services.sidecar.formats import protobuf
from services.sidecar.formats.avro import codec_of as avro_codec_of
from services.sidecar.formats.json_schema import codec_of as json_codec_of
from services.sidecar.formats.schema_formats import CodecFactory, SchemaFormats
from services.sidecar.schemas.known import KeepingLimits, KnownSchemas
from services.sidecar.schemas.registry import RegistryAccess, SchemaRegistry, load_client
from services.sidecar.settings import SidecarSettings


def registry_access(settings: SidecarSettings) -> RegistryAccess:
    """The address of the registry and the credentials for it."""
    return RegistryAccess(
        url=settings.schema_registry_url,
        user_info=settings.schema_registry_user_info.get_secret_value(),
        token=settings.schema_registry_token.get_secret_value(),
        cluster=settings.schema_registry_cluster,
        ca_location=settings.schema_registry_ca_location,
        certificate_location=settings.schema_registry_certificate_location,
        key_location=settings.schema_registry_key_location,
        key_password=settings.schema_registry_key_password.get_secret_value(),
        timeout_seconds=settings.schema_registry_timeout_ms / 1000,
        attempts=settings.schema_registry_attempts,
    )


def schema_formats(settings: SidecarSettings) -> SchemaFormats | None:
    """The formats with schemas; None when no registry is configured."""
    if not settings.schema_registry_url:
        return None
    load_client()
    schemas = KnownSchemas(
        SchemaRegistry(registry_access(settings)),
        KeepingLimits(settings.schema_cache_size, settings.schema_latest_ttl_ms / 1000),
        may_register=settings.auto_register_schemas,
    )
    factories: dict[SchemaKind, CodecFactory] = {
        SchemaKind.AVRO: partial(avro_codec_of, tagged_unions=not settings.use_no_wrapping_avro),
        SchemaKind.JSON: json_codec_of,
        SchemaKind.PROTOBUF: protobuf.codec_of,
    }
    return SchemaFormats(schemas, factories, most=settings.schema_cache_size)
