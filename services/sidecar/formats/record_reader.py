"""Keys and values of Kafka as JSON values, in the thread of the consumer that has them.

For a new schema, the thread asks the registry and waits; the wait is bounded, and happens once per schema.
"""

from mesh.schemas.framing import HeaderPairs, Part
from services.sidecar.formats import auto
from services.sidecar.formats.format import Format
from services.sidecar.formats.schema_formats import SchemaFormats


class RecordReader:
    """The one reader of the sidecar; the threads of all consumers use it."""

    def __init__(self, schemas: SchemaFormats | None = None) -> None:
        self._schemas = schemas

    def decode(self, format_: Format, part: Part, content: bytes, headers: HeaderPairs | None) -> object:
        """A key or a value (never null) as a JSON value of its format.

        FormatError when the content does not fit, or the registry does not know its schema: this is final, so the
        caller has to skip the record. RegistryUnavailableError when the registry cannot be asked: the caller may read
        the same record later.
        """
        if format_ is Format.AUTO:
            return self.detected(part, content, headers)[1]
        if format_.kind is None or self._schemas is None:
            return format_.codec.decode(content)
        return self._schemas.read(format_, part, content, headers)

    def detected(self, part: Part, content: bytes, headers: HeaderPairs | None) -> tuple[Format, object]:
        """The format that a key or a value shows by itself, and its JSON value in that format.

        The format is that of its schema, if the record names a schema that the registry knows, and fits it. All bytes
        have a format. RegistryUnavailableError if the registry cannot be asked for a schema.
        """
        found = None if self._schemas is None else self._schemas.read_any(part, content, headers)
        if found is not None:
            return found
        label, value = auto.detected(content)
        return Format.parse(label), value

    def shown(
        self, format_: Format, part: Part, content: bytes | None, headers: HeaderPairs | None
    ) -> tuple[object, str]:
        """As `decode`, for a key or a value that may be null; and the label of a format that the record has shown."""
        if content is None:
            return None, ""
        if format_ is not Format.AUTO:
            return self.decode(format_, part, content, headers), ""
        found, value = self.detected(part, content, headers)
        return value, found.label
