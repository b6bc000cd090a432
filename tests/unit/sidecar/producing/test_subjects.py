"""Subjects by strategy."""

import pytest

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format
from services.sidecar.producing.produce_request import SchemaChoice, Side, SubjectStrategy
from services.sidecar.producing.schema_choice import question_of
from services.sidecar.producing.subjects import subject_of
from services.sidecar.schemas.questions import ByText, Latest

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[]}'
TOPIC, RECORD, BOTH = SubjectStrategy


@pytest.mark.parametrize(
    ("strategy", "subject"), [(TOPIC, "orders-value"), (RECORD, "shop.Order"), (BOTH, "orders-shop.Order")]
)
def test_a_subject_is_named_after_topic_or_record_or_both(strategy: SubjectStrategy, subject: str) -> None:
    named = Side("value", Format.AVRO, SchemaChoice(raw=ORDER, strategy=strategy))
    unnamed = Side("value", Format.AVRO, SchemaChoice(raw=ORDER))
    assert subject_of(named, "orders", Format.AVRO, TOPIC) == subject
    assert subject_of(unnamed, "orders", Format.AVRO, strategy) == subject
    question = question_of(named, "orders", Format.JSON)
    assert isinstance(question, ByText)
    assert question.subject == subject


def test_a_subject_that_the_request_names_comes_before_the_usual_strategy() -> None:
    side = Side("key", Format.AVRO, SchemaChoice(subject="mine"))
    assert subject_of(side, "orders", Format.AVRO, RECORD) == "mine"


def test_a_subject_and_a_strategy_exclude_each_other() -> None:
    side = Side("key", Format.AVRO, SchemaChoice(subject="mine", strategy=RECORD))
    with pytest.raises(Fault, match="/keySubjectStrategy: and keySchemaSubject exclude each other"):
        subject_of(side, "orders", Format.AVRO, TOPIC)


def test_the_latest_schema_of_a_message_is_found_by_its_name() -> None:
    side = Side("value", Format.PROTOBUF, SchemaChoice(message="shop.Order", strategy=BOTH))
    assert question_of(side, "orders", Format.JSON) == Latest("orders-shop.Order")


@pytest.mark.parametrize("raw", [None, '"string"'])
def test_without_a_name_the_request_is_told_what_to_send(raw: str | None) -> None:
    side = Side("value", Format.AVRO, SchemaChoice(raw=raw, strategy=RECORD))
    with pytest.raises(Fault, match=r"send .*valueSchemaSubject") as refused:
        question_of(side, "orders", Format.JSON)
    assert refused.value.kind is FaultKind.FAILED_TO_GET_SCHEMA
