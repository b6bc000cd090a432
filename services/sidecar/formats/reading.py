"""Keys and values of Kafka as JSON values, in the thread of the consumer that has them.

A schema that is met for the first time is asked for there and then; that is bounded, and happens once per schema.
"""

from services.sidecar.formats.format import Format
from services.sidecar.formats.framing import HeaderPairs, Part
from services.sidecar.formats.schema_formats import SchemaFormats


class RecordReader:
    """One for the whole sidecar; used by the threads of all consumers."""

    def __init__(self, schemas: SchemaFormats | None = None) -> None:
        self._schemas = schemas

    def decode(self, format_: Format, part: Part, content: bytes, headers: HeaderPairs | None) -> object:
        """A key or a value, never null, as its format has it in JSON.

        FormatError when it does not fit, or the registry knows no such schema: it stays so, and the record has to be
        got past. RegistryUnavailableError when the registry cannot be asked: the same record may be read later.
        """
        if format_.kind is None or self._schemas is None:
            return format_.codec.decode(content)
        return self._schemas.read(format_, part, content, headers)
