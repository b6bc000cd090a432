"""First answers: how long, how many and how large they are kept, and what they look like in their topic."""

import pytest

from services.sidecar.producing.idempotency import IdempotencyKey, KeptAnswer, KeptAnswers

NOW = 1_700_000_000_000


def kept(**bounds: int) -> KeptAnswers:
    return KeptAnswers(**{"keep_ms": 1000, "max_keys": 10, "max_bytes": 1000, **bounds})


def answer(at_ms: int = NOW, body: bytes = b"{}") -> KeptAnswer:
    return KeptAnswer("digest", body, at_ms)


def test_an_answer_is_found_until_its_time_is_over() -> None:
    answers = kept(keep_ms=1000)
    answers.keep("k", answer(NOW), NOW)
    assert answers.find("k", NOW + 999) == answer(NOW)
    assert answers.find("k", NOW + 1000) is None
    assert len(answers) == 0


def test_the_oldest_go_when_there_are_too_many() -> None:
    answers = kept(max_keys=2)
    for key in ("a", "b", "c"):
        answers.keep(key, answer(), NOW)
    assert [answers.find(key, NOW) is not None for key in ("a", "b", "c")] == [False, True, True]


def test_the_oldest_go_when_they_are_too_large_together() -> None:
    answers = kept(max_bytes=25)
    for key in ("a", "b"):
        answers.keep(key, answer(body=b"0123456789012345"), NOW)
    assert [answers.find(key, NOW) is not None for key in ("a", "b")] == [False, True]


def test_an_answer_that_is_read_again_is_counted_once() -> None:
    answers = kept(max_bytes=25)
    for _ in range(3):
        answers.keep("a", answer(body=b"0123456789012345"), NOW)
    assert answers.find("a", NOW) is not None


def test_what_is_written_to_the_topic_is_read_back() -> None:
    written = KeptAnswer("digest", b'{"offsets":[{"partition":0,"offset":7}]}', NOW)
    assert KeptAnswer.decoded(written.encoded()) == written


@pytest.mark.parametrize("text", [b"", b"x", b"[]", b"{}", b'{"digest":1}'])
def test_what_somebody_else_wrote_is_no_answer(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        KeptAnswer.decoded(text)


def test_requests_differ_by_any_of_their_parts() -> None:
    requests = [(b"/a", b"xy"), (b"/ax", b"y"), (b"/a", b"xyz"), (b"/a", b"", b"xy")]
    assert len({IdempotencyKey.of("k", *parts).digest for parts in requests}) == len(requests)
