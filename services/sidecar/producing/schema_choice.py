"""The schema that one side (keys or values) of a request asks for, and the check that its members fit together.

- An id means that schema, and the format of its language. It excludes a version and a text.
- A version means that version of the subject, and the format of its language. It excludes a text.
- A text is registered under the subject if the subject does not have it yet. It needs a format with schemas.
- A subject alone means its latest version. It excludes a format without schemas.
- Nothing means the latest version of the subject, if the format has schemas.

The default subject is that of the sidecar's strategy: see `subjects`. The default format counts only if the request
names no schema: a caller that names a schema wants that schema.
"""

from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import Format
from services.sidecar.producing.produce_request import Side, SubjectStrategy
from services.sidecar.producing.subjects import subject_of
from services.sidecar.schemas.questions import ById, ByText, ByVersion, Latest, Question


def question_of(
    side: Side, topic: str, default: Format, usual: SubjectStrategy = SubjectStrategy.TOPIC_NAME
) -> Question | None:
    """The question for the registry; None if the side needs no schema. Fault when members exclude each other.

    `usual`: the strategy of sides that name none.
    """
    _check(side)
    schema, format_ = side.schema, side.format or default
    if schema.schema_id is not None:
        return ById(schema.schema_id)
    if schema.version is not None:
        return ByVersion(subject_of(side, topic, format_, usual), schema.version)
    if schema.raw is not None and format_.kind is not None:
        return ByText.of(subject_of(side, topic, format_, usual), format_.kind, schema.raw, schema.references)
    if format_.kind is not None or schema.subject:
        return Latest(subject_of(side, topic, format_, usual))
    if schema.message is not None:
        raise invalid(f"/{side.name}SchemaMessage", f"{side.name}Format {format_.label} has no schemas, so no messages")
    return None


def _check(side: Side) -> None:
    name, schema = side.name, side.schema
    by_id, by_version, raw = schema.schema_id is not None, schema.version is not None, schema.raw is not None
    if by_id and by_version:
        raise Fault(
            FaultKind.VERSION_WITH_SCHEMA_ID, f"{name}SchemaId and {name}SchemaVersion exclude each other; send one"
        )
    if by_id and raw:
        raise Fault(FaultKind.SCHEMA_WITH_SCHEMA_ID, f"{name}SchemaId and {name}Schema exclude each other; send one")
    if by_version and raw:
        raise Fault(
            FaultKind.SCHEMA_WITH_SCHEMA_VERSION, f"{name}SchemaVersion and {name}Schema exclude each other; send one"
        )
    if raw and (side.format is None or side.format.kind is None):
        raise Fault(
            FaultKind.RAW_SCHEMA_WITHOUT_FORMAT, f"{name}Schema needs {name}Format: AVRO, JSONSCHEMA or PROTOBUF"
        )
    if schema.subject and not (by_id or by_version or raw) and side.format is not None and side.format.kind is None:
        raise Fault(
            FaultKind.FORMAT_WITH_SUBJECT,
            f"{name}SchemaSubject names schemas, and {name}Format {side.format.name} has none; send one of the two",
        )
    if schema.references and not raw:
        raise invalid(f"/{name}SchemaReferences", f"says what {name}Schema refers to; send both, or neither")
