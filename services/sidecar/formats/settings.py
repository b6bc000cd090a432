"""Settings of the formats of keys and values."""

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from services.sidecar.formats import Format
from services.sidecar.formats.format import available_labels
from services.sidecar.formats.registered import WHAT_TO_SET
from services.sidecar.schemas.settings import SchemaSettings

DefaultFormat = Annotated[Format, BeforeValidator(Format.parse)]


class FormatSettings(SchemaSettings):
    """A part of SidecarSettings."""

    key_format: DefaultFormat = Format.STRING
    """The format of keys in requests that name none: `binary`, `json`, `avro`, `jsonschema`, `protobuf` or `string`.
    See `docs/reference/sidecar-formats.md`."""
    value_format: DefaultFormat = Format.JSON
    """The format of values in requests that name none."""
    consumer_key_format: DefaultFormat | None = None
    """The format of keys of instances and subscriptions that name none; empty: as `KEY_FORMAT`. May be `auto`."""
    consumer_value_format: DefaultFormat | None = None
    """The format of values of instances and subscriptions that name none; empty: as `VALUE_FORMAT`. May be `auto`."""

    @model_validator(mode="after")
    def _schemas_can_be_had(self) -> "FormatSettings":
        for name in ("key_format", "value_format", "consumer_key_format", "consumer_value_format"):
            format_: Format | None = getattr(self, name)
            if format_ is Format.AUTO and not name.startswith("consumer"):
                raise ValueError(f"{name} is also for requests that write: auto is for consumer_{name} only")
            if format_ is not None and format_.kind is not None and not self.schema_registry_url:
                raise ValueError(f"{name} {format_.label} {WHAT_TO_SET}, or take one of {available_labels()}")
        return self

    @property
    def instance_formats(self) -> tuple[Format, Format]:
        """The formats of keys and of values, for an instance that names none."""
        return self.consumer_key_format or self.key_format, self.consumer_value_format or self.value_format
