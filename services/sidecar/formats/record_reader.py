"""Keys and values of Kafka as JSON values, in the thread of the consumer that has them.

For a new schema, the thread asks the registry and waits; the wait is bounded, and happens once per schema.
"""

from services.sidecar.formats.format import Format
from services.sidecar.formats.framing import HeaderPairs, Part
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
        if format_.kind is None or self._schemas is None:
            return format_.codec.decode(content)
        return self._schemas.read(format_, part, content, headers)
