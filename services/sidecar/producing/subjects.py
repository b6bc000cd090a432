"""The subject under which the registry has the schema of one side (keys or values) of a request."""

from mesh.schemas.schema import SchemaError
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import Format
from services.sidecar.producing.produce_request import Side, SubjectStrategy
from services.sidecar.schemas.record_name import record_name


def subject_of(side: Side, topic: str, format_: Format, usual: SubjectStrategy) -> str:
    """The subject that the side names, else that of its strategy, else that of the usual strategy.

    Fault if a record's name is needed, and the request does not have the name.
    """
    schema, strategy = side.schema, side.schema.strategy
    if schema.subject:
        if strategy is not None:
            raise invalid(
                f"/{side.name}SubjectStrategy", f"and {side.name}SchemaSubject exclude each other; send one of the two"
            )
        return schema.subject
    match strategy or usual:
        case SubjectStrategy.TOPIC_NAME:
            return f"{topic}-{side.name}"
        case SubjectStrategy.RECORD_NAME:
            return _record_name(side, format_)
        case SubjectStrategy.TOPIC_RECORD_NAME:
            return f"{topic}-{_record_name(side, format_)}"


def _record_name(side: Side, format_: Format) -> str:
    schema = side.schema
    try:
        if schema.raw is not None and format_.kind is not None:
            return record_name(format_.kind, schema.raw, schema.message)
        if schema.message is not None:
            return schema.message
        why = f"the request does not have the record's name: send {side.name}Schema or {side.name}SchemaSubject"
    except SchemaError as error:
        why = f"{error}; send {side.name}SchemaSubject"
    raise Fault(
        FaultKind.FAILED_TO_GET_SCHEMA,
        f"Failed to get schema for {side.name}s: its subject is a record's name, and {why}",
    )
