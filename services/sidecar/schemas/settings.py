"""Settings of the schema registry and of the cache of its schemas."""

from pydantic import BaseModel, Field, PositiveInt, SecretStr, model_validator


class SchemaSettings(BaseModel):
    """A part of SidecarSettings."""

    schema_registry_url: str = Field(default="", pattern=r"^(https?://[^@\s?#,]+(,https?://[^@\s?#,]+)*)?$")
    """Schema registry with Confluent's API: one or several addresses, with commas between.

    Empty for none: then the formats avro, jsonschema and protobuf are refused.
    """
    schema_registry_user_info: SecretStr = SecretStr("")
    """The login at the registry, `user:password`, also as `${env:NAME}` or `${file:/path}`; read again when the
    registry refuses it."""
    schema_registry_token: SecretStr = SecretStr("")
    """A bearer token in place of the login; may be `${env:NAME}` or `${file:/path}`."""
    schema_registry_cluster: str = ""
    """The logical cluster, in the terms of Confluent's cloud; sent along with a token."""
    schema_registry_ca_location: str = ""
    """The authorities, in PEM, that sign the registry's certificate; empty: those of the system."""
    schema_registry_certificate_location: str = ""
    """The sidecar's own certificate for the registry, in PEM."""
    schema_registry_key_location: str = ""
    """The key of that certificate, in PEM."""
    schema_registry_key_password: SecretStr = SecretStr("")
    """Opens the key; may be `${env:NAME}` or `${file:/path}`."""
    schema_registry_timeout_ms: PositiveInt = 2_000
    """The time-out of one question to the registry."""
    schema_registry_attempts: int = Field(default=2, ge=1, le=10)
    """The number of attempts. Together they must stay below the 5 s that a read waits for its consumer. Otherwise the
    read reports a busy consumer in place of the registry's fault."""
    schema_cache_size: PositiveInt = 1_000
    """Schemas that are kept, each with its codec."""
    schema_latest_ttl_ms: PositiveInt = 300_000
    """How long the latest version of a subject counts as the latest; all others never change."""
    auto_register_schemas: bool = True
    """Whether the raw schema of a request is registered where its subject does not have it yet."""
    use_no_wrapping_avro: bool = False
    """Whether values of Avro unions are read plain, `5` instead of `{"int": 5}`. Both can be written."""

    @model_validator(mode="after")
    def _has_one_login(self) -> "SchemaSettings":
        if self.schema_registry_user_info.get_secret_value() and self.schema_registry_token.get_secret_value():
            raise ValueError("schema_registry_user_info and schema_registry_token exclude each other; set one")
        return self
