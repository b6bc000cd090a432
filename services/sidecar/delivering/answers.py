"""Reads a backend's answer about its records strictly: one result for each record, in their order.

The forms of an answer:

- `[{"record": {…}, "processed": true}, …]`: the original's form; also with `consumerRecord`.
- `[{"status": "RETRY", "stacktrace": "…"}, …]`: this mesh's form; SUCCESS, RETRY, DROP, DEAD_LETTER.
- `{"results": […], "produce": [{"topic": …, "records": […]}]}`: with records to write; also within each result.
- `[{"status": "SUCCESS", "records": [{"key": …, "value": …}]}]`: with records that replace the record, in streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mesh.json_types import type_name
from services.sidecar.formats import json_text

LONGEST_STACK_TRACE = 16 * 1024
"""Characters; as much as a dead letter keeps."""
LONGEST_ID = 256


class AnswerError(ValueError):
    """An answer that is not valid for the records. The text says what is wrong, where, and what was expected."""


class Said(Enum):
    """The outcome that a result reports for its record."""

    PROCESSED = "processed"
    NOT_PROCESSED = "not processed"
    """The original's words. The consequence depends on the other records of the call."""
    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    DROP = "DROP"
    DEAD_LETTER = "DEAD_LETTER"

    @property
    def is_well(self) -> bool:
        return self in (Said.PROCESSED, Said.SUCCESS)


STATUSES = {said.value: said for said in (Said.SUCCESS, Said.RETRY, Said.DROP, Said.DEAD_LETTER)}


class Result(NamedTuple):
    """The result of one record. There is one for each record, so it is a tuple."""

    said: Said
    stacktrace: str = ""
    correlation_id: str = ""
    traceability_id: str = ""
    produce: Sequence[object] = ()
    """Records to write for this record, as the answer holds them."""
    becomes: Sequence[dict[str, object]] | None = None
    """The records that continue in a stream in place of this record; None: the record itself continues."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one call."""

    results: Sequence[Result]
    produce: Sequence[object] = ()
    """Records to write for the call as a whole."""


def read_answer(body: bytes, records: int) -> Answer:
    """The answer to a call with so many records. AnswerError if the body is no such answer."""
    if not body.strip():
        raise AnswerError(f"the answer is empty; expected a list of {_results(records)}")
    try:
        told = json_text.loads(body)
    except json_text.JsonError as error:
        begins = body[:60].decode(errors="replace")
        raise AnswerError(f"the answer is not JSON ({error}); it begins with {begins!r}") from None
    produce: Sequence[object] = ()
    if isinstance(told, dict) and "results" in told:
        produce = _produce(told, "the answer")
        told = told["results"]
    if not isinstance(told, list):
        found = type_name(told)
        raise AnswerError(f"expected a list of {_results(records)}, or one as 'results'; found: {found}")
    if len(told) != records:
        raise AnswerError(f"expected {_results(records)}, one for each record in its order; found: {len(told)}")
    return Answer([_result(place, one) for place, one in enumerate(told)], produce)


def _result(place: int, told: object) -> Result:
    if not isinstance(told, dict):
        raise AnswerError(f"result {place}: expected an object; found: {type_name(told)}")
    get = told.get
    said = _said(place, get("status"), get("processed"))
    becomes = _becomes(told, place)
    if said is Said.PROCESSED and "produce" not in told:
        return _PROCESSED if becomes is None else Result(said, becomes=becomes)
    return Result(
        said,
        _text(get("stacktrace"), LONGEST_STACK_TRACE),
        _text(get("correlationId"), LONGEST_ID),
        _text(get("traceabilityId"), LONGEST_ID),
        _produce(told, f"result {place}"),
        becomes,
    )


def _becomes(told: dict[str, object], place: int) -> Sequence[dict[str, object]] | None:
    """Records in its place, or the record as the backend gave it back."""
    records = told.get("records")
    if records is None:
        record = told.get("record", told.get("consumerRecord"))
        return [record] if isinstance(record, dict) and "value" in record else None
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        found = type_name(records)
        raise AnswerError(f"result {place}: 'records' is a list of {{key, value}}; found: {found}")
    return records


def _said(place: int, status: object, processed: object) -> Said:
    if status is not None:
        if isinstance(status, str) and (said := STATUSES.get(status.upper())):
            return said
        raise AnswerError(f"result {place}: status {status!r:.40} is none of {', '.join(STATUSES)}")
    if processed is True:
        return Said.PROCESSED
    if processed is False:
        return Said.NOT_PROCESSED
    found = "nothing" if processed is None else type_name(processed)
    raise AnswerError(
        f"result {place}: expected 'processed' (true or false) or 'status' ({', '.join(STATUSES)}); found: {found}"
    )


def _produce(told: dict[str, object], where: str) -> Sequence[object]:
    produce = told.get("produce")
    if produce is None:
        return ()
    if not isinstance(produce, list):
        raise AnswerError(f"{where}: 'produce' is a list of {{topic, records}}; found: {type_name(produce)}")
    return produce


def _text(told: object, longest: int) -> str:
    return told[:longest] if isinstance(told, str) else ""


def _results(count: int) -> str:
    return "1 result" if count == 1 else f"{count} results"


_PROCESSED = Result(Said.PROCESSED)
"""Nearly all results are this one. The ids of a processed record are in its headers."""
