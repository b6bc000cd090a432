"""What is asked next, and what becomes of each record: the backend is a function of the offsets that it gets."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.sidecar.delivering.answers import Answer, Result, Said
from services.sidecar.delivering.batch import ReplyRecord, Settlement
from services.sidecar.delivering.failures import Blame, CallFailedError
from services.sidecar.delivering.policy import DeliveryPolicy, WhenExhausted
from services.sidecar.delivering.progress import Progress
from services.sidecar.records import Outcome, Outgoing
from tests.fixtures.deliveries import batch, outcomes
from tests.fixtures.sweeps import REPEAT

POLICY = DeliveryPolicy(max_retries=2, retry_delay=1.0, max_retry_delay=5.0)
NOW = 1_800_000_000_000
RESET = CallFailedError("connection reset", Blame.UNCLEAR, outcome="reset")
REFUSED = CallFailedError("422", Blame.RECORDS, outcome="422")
AWAY = CallFailedError("connection refused", Blame.BACKEND, outcome="unreachable")
P, N = Said.PROCESSED, Said.NOT_PROCESSED

Said_ = Sequence[Said] | CallFailedError
Plays = Callable[[list[int]], Said_]


class Story:
    """One batch from its first call to its settlement."""

    def __init__(self, count: int, plays: Plays, policy: DeliveryPolicy = POLICY) -> None:
        self.calls: list[list[int]] = []
        self.pauses: list[float] = []
        self.given_up = 0
        self.progress = Progress(batch(count), policy, clock_ms=lambda: NOW, between=lambda _, most: most)
        while (ask := self.progress.ask) is not None and len(self.calls) < 200:
            offsets = [record.raw.offset for record in ask.records]
            self.calls.append(offsets)
            said = plays(offsets)
            if isinstance(said, CallFailedError):
                pause, given_up = self.progress.failed(said, counts=said.blame is not Blame.BACKEND)
                self.given_up += given_up
            else:
                results = [Result(one, "failed" if one is N else "") for one in said]
                replies = [[reply(f"{place}")] for place in offsets]
                pause = self.progress.answered(Answer(results), replies, [reply("all")])
            self.pauses.append(pause)

    @property
    def settlement(self) -> Settlement:
        return self.progress.settlement()

    @property
    def replies(self) -> list[str]:
        return [one.topic for one in self.settlement.replies]


def reply(topic: str) -> ReplyRecord:
    return ReplyRecord(topic, Outgoing(None, None, None, 0, []))


def script(*said: Said_) -> Plays:
    left = list(said)
    return lambda _: left.pop(0)


def never(*bad: int, how: Said_ = (N,)) -> Plays:
    """These records fail, whatever is done; with a whole call, if that is how."""

    def play(offsets: list[int]) -> Said_:
        if isinstance(how, CallFailedError):
            return how if set(bad) & set(offsets) else [P] * len(offsets)
        return [how[0] if offset in bad else P for offset in offsets]

    return play


def test_a_batch_that_is_processed_is_one_call() -> None:
    story = Story(3, script([P, P, P]))
    assert story.calls == [[0, 1, 2]]
    assert outcomes(story.settlement) == ["SUCCESS"] * 3
    assert [one.attempts for one in story.settlement.verdicts] == [1, 1, 1]
    assert story.pauses == [0.0]


def test_nothing_to_deliver_is_settled_at_once() -> None:
    story = Story(0, script())
    assert (story.calls, outcomes(story.settlement)) == ([], [])


def test_few_failures_become_dead_letters_at_once_and_the_others_are_done() -> None:
    story = Story(10, script([P] * 7 + [N] * 3))  # 30 percent are not more than 30
    assert len(story.calls) == 1
    assert outcomes(story.settlement) == ["SUCCESS"] * 7 + ["DEAD_LETTER backend"] * 3
    assert story.settlement.verdicts[9].stacktrace == "failed"
    assert story.settlement.verdicts[9].first_failure == NOW


def test_too_many_failures_repeat_the_whole_call_and_then_give_up_only_those_that_fail() -> None:
    story = Story(3, never(1))  # 1 of 3 is more than 30 percent
    assert story.calls == [[0, 1, 2]] * 3
    assert outcomes(story.settlement) == ["SUCCESS", "DEAD_LETTER retries", "SUCCESS"]
    assert story.settlement.verdicts[1].attempts == 3


def test_a_call_that_is_repeated_and_then_processed_is_done() -> None:
    story = Story(2, script([N, N], [P, P]))
    assert story.calls == [[0, 1], [0, 1]]
    assert outcomes(story.settlement) == ["SUCCESS", "SUCCESS"]


@pytest.mark.parametrize(
    ("threshold", "failed", "calls"),
    [(0, 0, 1), (0, 1, 3), (30, 3, 1), (30, 4, 3), (99, 9, 1), (99, 10, 3), (100, 10, 1)],
)
def test_the_threshold_is_what_failures_have_to_exceed(threshold: int, failed: int, calls: int) -> None:
    """The original repeats at 0 what has no failure, and at 100 what has nothing else."""
    story = Story(10, never(*range(failed)), replace(POLICY, rollback_threshold=threshold))
    assert len(story.calls) == calls
    assert [one.outcome for one in story.settlement.verdicts].count(Outcome.DEAD_LETTER) == failed


def test_a_status_settles_its_record_and_retry_sends_it_alone_again() -> None:
    said = [Said.SUCCESS, Said.RETRY, Said.DROP, Said.DEAD_LETTER, Said.RETRY]
    story = Story(5, script(said, [Said.SUCCESS, Said.RETRY], [Said.SUCCESS]))
    assert story.calls == [[0, 1, 2, 3, 4], [1, 4], [4]]
    assert outcomes(story.settlement) == ["SUCCESS", "SUCCESS", "DROP", "DEAD_LETTER backend", "SUCCESS"]


def test_who_is_to_be_retried_for_ever_becomes_a_dead_letter() -> None:
    story = Story(2, never(0, how=[Said.RETRY]))
    assert story.calls == [[0, 1], [0], [0]]
    assert outcomes(story.settlement) == ["DEAD_LETTER retries", "SUCCESS"]


def test_pauses_double_up_to_their_bound() -> None:
    story = Story(1, never(0), replace(POLICY, max_retries=5))
    assert story.pauses == [1.0, 2.0, 4.0, 5.0, 5.0, 0.0]


def test_poison_is_found_by_splitting_and_order_is_kept() -> None:
    story = Story(8, never(5, how=RESET))
    assert story.calls == [
        list(range(8)), list(range(8)),  # once may be an accident
        [0, 1, 2, 3],
        [4, 5, 6, 7], [4, 5],
        [4],
        [5], [5], [5],
        [6, 7],
    ]  # fmt: skip
    assert outcomes(story.settlement) == ["SUCCESS"] * 5 + ["DEAD_LETTER retries"] + ["SUCCESS"] * 2
    assert story.settlement.verdicts[5].stacktrace == "connection reset"
    assert story.given_up == 1


def test_a_call_that_is_refused_is_split_at_once() -> None:
    story = Story(4, never(0, how=REFUSED), replace(POLICY, max_retries=0))
    assert story.calls == [[0, 1, 2, 3], [0, 1], [0], [1], [2, 3]]
    assert story.pauses == [0.0] * 5


def test_what_is_too_large_for_the_backend_says_so() -> None:
    too_large = CallFailedError("413", Blame.RECORDS, outcome="413", is_too_large=True)
    story = Story(2, never(1, how=too_large))
    assert outcomes(story.settlement) == ["SUCCESS", "DEAD_LETTER oversize"]


def test_a_record_over_the_bound_is_never_sent() -> None:
    story = Story(2, script(), replace(POLICY, max_record_bytes=5))
    assert (story.calls, outcomes(story.settlement)) == ([], ["DEAD_LETTER oversize"] * 2)
    assert story.settlement.verdicts[0].stacktrace == "key and value have 12 bytes; the backend is given 5 at most"
    assert story.settlement.verdicts[0].attempts == 0


def test_a_backend_that_is_away_costs_no_record_an_attempt() -> None:
    story = Story(2, script(*[AWAY] * 50, [N, N], [N, N], [P, P]))
    assert story.calls == [[0, 1]] * 53
    assert outcomes(story.settlement) == ["SUCCESS", "SUCCESS"]
    assert story.settlement.verdicts[0].attempts == 53


def test_without_dead_letters_a_record_is_tried_for_ever() -> None:
    policy = replace(POLICY, when_exhausted=WhenExhausted.RETRY)
    story = Story(10, script(*[[P] * 9 + [N]], *[[N]] * 100, [P]), policy)
    assert story.calls == [list(range(10)), *[[9]] * 101]
    assert outcomes(story.settlement) == ["SUCCESS"] * 10


def test_without_dead_letters_it_may_be_dropped_as_well() -> None:
    story = Story(1, never(0), replace(POLICY, when_exhausted=WhenExhausted.DROP))
    assert outcomes(story.settlement) == ["DROP retries"]


def test_replies_of_records_that_are_done_are_written_once() -> None:
    story = Story(3, script([P, N, N], [P, N, P]), replace(POLICY, rollback_threshold=50))
    assert story.calls == [[0, 1, 2]] * 2
    assert outcomes(story.settlement) == ["SUCCESS", "DEAD_LETTER backend", "SUCCESS"]
    assert story.replies == ["0", "2", "all"]


BACKENDS = st.dictionaries(
    st.integers(0, 11), st.sampled_from([N, Said.RETRY, Said.DROP, Said.DEAD_LETTER, RESET, REFUSED])
)


@given(count=st.integers(1, 12), bad=BACKENDS, threshold=st.integers(0, 100), patience=st.integers(1, 3))
@settings(max_examples=60 * REPEAT)
def test_whoever_fails_how_order_is_kept_and_only_the_bad_are_given_up(
    count: int, bad: dict[int, Said | CallFailedError], threshold: int, patience: int
) -> None:
    def play(offsets: list[int]) -> Said_:
        found = [bad[one] for one in offsets if one in bad]
        whole = next((one for one in found if isinstance(one, CallFailedError)), None)
        return whole or [said if isinstance(said := bad.get(one, P), Said) else P for one in offsets]

    story = Story(count, play, replace(POLICY, rollback_threshold=threshold, isolate_after=patience))
    for verdict in story.settlement.verdicts:
        is_bad = verdict.record.offset in bad
        assert (verdict.outcome is Outcome.SUCCESS) is not is_bad
        assert verdict.attempts >= 1
    assert [one.record.offset for one in story.settlement.verdicts] == list(range(count))
    for number, offsets in enumerate(story.calls):
        assert offsets == sorted(offsets)
        later = {offset for call in story.calls[number + 1 :] for offset in call}
        assert later <= {offset for offset in range(count) if offset >= offsets[0]}, "what is in front is settled first"
