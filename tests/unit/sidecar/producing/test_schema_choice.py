"""Which schema a request asks for: each combination of what can be said."""

import pytest

from mesh.schemas.schema import Reference, SchemaKind
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format
from services.sidecar.producing.produce_request import SchemaChoice, Side
from services.sidecar.producing.schema_choice import question_of
from services.sidecar.schemas.questions import ById, ByText, ByVersion, Latest, Question

RAW = '"string"'
TEXT = ByText.of("apples-value", SchemaKind.AVRO, RAW)


def chosen(format_: Format | None, choice: SchemaChoice, default: Format) -> Question | None:
    return question_of(Side("value", format_, choice), "apples", default)


@pytest.mark.parametrize(
    ("format_", "choice", "default", "question"),
    [
        # nothing said about a schema: the format decides
        (None, SchemaChoice(), Format.JSON, None),
        (Format.STRING, SchemaChoice(), Format.AVRO, None),
        (None, SchemaChoice(), Format.AVRO, Latest("apples-value")),
        (Format.PROTOBUF, SchemaChoice(), Format.JSON, Latest("apples-value")),
        # an id, a version or a subject wins over the default format (T19), and over a given one for id and version
        (None, SchemaChoice(schema_id=3), Format.JSON, ById(3)),
        (Format.AVRO, SchemaChoice(schema_id=3), Format.JSON, ById(3)),
        (Format.STRING, SchemaChoice(schema_id=3), Format.JSON, ById(3)),
        (None, SchemaChoice(schema_id=3, subject="fruit"), Format.JSON, ById(3)),
        (None, SchemaChoice(version=2), Format.JSON, ByVersion("apples-value", 2)),
        (Format.JSON, SchemaChoice(version=2, subject="fruit"), Format.JSON, ByVersion("fruit", 2)),
        (None, SchemaChoice(subject="fruit"), Format.STRING, Latest("fruit")),
        (Format.AVRO, SchemaChoice(subject="fruit"), Format.STRING, Latest("fruit")),
        # a text says its language by the format beside it
        (Format.AVRO, SchemaChoice(raw=RAW), Format.JSON, TEXT),
        (Format.AVRO, SchemaChoice(raw=RAW, subject=""), Format.JSON, TEXT),
        (Format.JSONSCHEMA, SchemaChoice(raw="{}", subject="f"), Format.JSON, ByText.of("f", SchemaKind.JSON, "{}")),
        (
            Format.AVRO,
            SchemaChoice(raw=RAW, references=(Reference("n", "s", 1),)),
            Format.JSON,
            ByText.of("apples-value", SchemaKind.AVRO, RAW, (Reference("n", "s", 1),)),
        ),
    ],
)
def test_what_is_said_means_one_schema_or_none(
    format_: Format | None, choice: SchemaChoice, default: Format, question: Question | None
) -> None:
    assert chosen(format_, choice, default) == question


@pytest.mark.parametrize(
    ("format_", "choice", "kind"),
    [
        (Format.AVRO, SchemaChoice(schema_id=1, version=1), FaultKind.VERSION_WITH_SCHEMA_ID),
        (Format.AVRO, SchemaChoice(schema_id=1, raw=RAW), FaultKind.SCHEMA_WITH_SCHEMA_ID),
        (Format.AVRO, SchemaChoice(version=1, raw=RAW), FaultKind.SCHEMA_WITH_SCHEMA_VERSION),
        (Format.AVRO, SchemaChoice(schema_id=1, version=1, raw=RAW), FaultKind.VERSION_WITH_SCHEMA_ID),
        (None, SchemaChoice(raw=RAW), FaultKind.RAW_SCHEMA_WITHOUT_FORMAT),
        (Format.JSON, SchemaChoice(raw=RAW), FaultKind.RAW_SCHEMA_WITHOUT_FORMAT),
        (Format.STRING, SchemaChoice(subject="fruit"), FaultKind.FORMAT_WITH_SUBJECT),
        (Format.JSON, SchemaChoice(message="Apple"), FaultKind.VALIDATOR_SCHEMA),
        (Format.AVRO, SchemaChoice(references=(Reference("n", "s", 1),)), FaultKind.VALIDATOR_SCHEMA),
    ],
)
@pytest.mark.parametrize("default", [Format.JSON, Format.AVRO])
def test_wishes_that_exclude_each_other_are_refused(
    format_: Format | None, choice: SchemaChoice, kind: FaultKind, default: Format
) -> None:
    with pytest.raises(Fault) as raised:
        chosen(format_, choice, default)
    assert raised.value.kind is kind
    assert "value" in raised.value.description


def test_texts_are_told_apart_by_what_they_say() -> None:
    one, other = (ByText.of("s", SchemaKind.AVRO, text) for text in ('"string"', '"bytes"'))
    assert one != other
    assert one == ByText.of("s", SchemaKind.AVRO, '"string"')
