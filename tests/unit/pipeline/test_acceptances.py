"""What serve tells the driver of a job about losses, and what the job answers."""

from __future__ import annotations

import io
import math

import pytest

from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import (
    Acceptance,
    Acceptances,
    Answer,
    answer_of_line,
    given_up,
    of_line,
)
from services.pipeline.kafka.lags import lost_spans
from services.pipeline.kafka.positions import PartitionLog, RecordsLostError, Span, TopicLog, TopicPosition, advance

ORDER = Acceptance("orders/1", "apples", math.inf)
OLD = Acceptance("orders/0", "apples", 0.0)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(job_reports, "say", lines.append)
    return lines


def test_lines_are_read_as_they_were_written() -> None:
    assert of_line(ORDER.to_line()) == ORDER
    answer = Answer("orders/1", True, "goes on")
    assert answer_of_line(answer.to_line().encode()) == answer


@pytest.mark.parametrize("line", ["", "{", "[]", "1", '{"accept_loss": 1}', '{"accept_loss": {"order": "orders/1"}}'])
def test_other_lines_are_nothing(line: str) -> None:
    assert of_line(line) is None
    assert answer_of_line(line.encode()) is None


def test_an_acceptance_is_open_until_it_is_answered(said: list[str]) -> None:
    acceptances = Acceptances()
    acceptances.listen(io.StringIO(f"{ORDER.to_line()}\nnonsense\n"))
    had_news = acceptances.has_news
    assert acceptances.open_for(["apples", "pears"]) == {"apples": [ORDER]}
    assert (had_news, acceptances.has_news) == (True, False)
    assert acceptances.open_for(["apples"]) == {"apples": [ORDER]}, "nobody has answered"
    acceptances.answer(ORDER, "goes on")
    assert acceptances.open_for(["apples"]) == {}
    assert said == [Answer("orders/1", True, "goes on").to_line()]


def test_a_topic_that_is_none_of_the_jobs_is_refused_at_once(said: list[str]) -> None:
    acceptances = Acceptances()
    acceptances.take(ORDER)
    assert acceptances.open_for(["pears"]) == {}
    text = "topic apples is none of this job's (it reads: pears)"
    assert said == [Answer("orders/1", False, text).to_line()]


def test_what_has_expired_is_not_begun(said: list[str]) -> None:
    acceptances = Acceptances()
    acceptances.take(OLD)
    assert acceptances.open_for(["apples"]) == {}
    assert said == [], "control has said by itself that nobody carried it out"


def test_it_is_said_what_is_given_up() -> None:
    assert given_up([Span("apples", 1, 3, 7)]) == "goes on without what retention took: apples/1 offsets 3 to 6"
    many = given_up([Span("apples", partition, 0, 1) for partition in range(12)])
    assert many.endswith("apples/9 offsets 0 to 0 and 2 partitions more")
    assert given_up([]).startswith("nothing is lost there")


def test_a_loss_is_accepted_of_the_topics_that_were_named_alone() -> None:
    position = {topic: TopicPosition(topic, {0: 5, 1: 9}) for topic in ("apples", "pears")}
    logs = {topic: TopicLog(topic, {0: PartitionLog(8, 20), 1: PartitionLog(0, 9)}) for topic in position}
    assert lost_spans(position, logs) == [Span("apples", 0, 5, 8), Span("pears", 0, 5, 8)]
    accepted = advance(position, {"apples": logs["apples"]}, accept_loss_of=("apples",))
    assert (accepted["apples"].next, accepted["apples"].starts) == ({0: 20, 1: 9}, {0: 8})
    with pytest.raises(RecordsLostError, match="pears/0 begins at offset 8"):
        advance(position, logs, accept_loss_of=("apples",))
