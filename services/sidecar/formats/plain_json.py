"""Any JSON value, without a schema."""

import orjson

from mesh.schemas.schema import FormatError
from services.sidecar.formats import json_text


class Json:
    """JSON on both sides. JSON from Kafka goes into the answer unchanged, so numbers keep their digits."""

    def encode(self, value: object) -> bytes:
        try:
            return json_text.dumps(value)
        except json_text.JsonError as error:
            raise FormatError(str(error)) from None

    def decode(self, data: bytes) -> orjson.Fragment:
        try:
            return json_text.checked(data)
        except json_text.JsonError as error:
            raise FormatError(f"not JSON: {error}") from None
