"""Answers for an assistant: bounded, and without characters that nobody sees."""

from __future__ import annotations

import pytest

from meshctl.assistant.answers import MOST_BYTES, MOST_CHARACTERS, MOST_ITEMS, TooLongError, bounded, clean


def test_a_small_answer_stays_as_it_is() -> None:
    document = {"topics": [{"name": "topics/äpfel", "lag": "7", "own": True, "partitions": 2}], "next_page_token": ""}
    assert bounded(document) == document


def test_a_long_list_is_cut_and_the_rest_counted() -> None:
    found = bounded({"group": {"members": list(range(MOST_ITEMS + 7))}, "few": [1]})
    assert len(found["group"]["members"]) == MOST_ITEMS
    assert found["left_out"] == {"group.members": 7}


def test_lists_of_the_same_name_are_counted_together() -> None:
    found = bounded({"rules": [{"tried": list(range(MOST_ITEMS + 2))}, {"tried": list(range(MOST_ITEMS + 3))}]})
    assert found["left_out"] == {"rules.tried": 5}


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * (MOST_CHARACTERS + 1_000)) == "x" * MOST_CHARACTERS + "... (1,000 more characters)"


def test_an_answer_that_is_too_long_says_how_to_get_a_part() -> None:
    texts = ["x" * MOST_CHARACTERS] * (MOST_ITEMS - 1)
    with pytest.raises(TooLongError, match="smaller page_size"):
        bounded({"one": texts, "two": texts})
    assert MOST_BYTES < 2 * MOST_CHARACTERS * (MOST_ITEMS - 1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a<U+200B>b"),  # takes no place
        ("a\u202eb", "a<U+202E>b"),  # turns the direction
        ("a\U000e0041b", "a<U+E0041>b"),  # a letter that no font has
        ("a\x1b[2Jb", "a<U+001B>[2Jb"),  # an order to a terminal
        ("two\nlines", "two\nlines"),
        ("Grüße, 日本", "Grüße, 日本"),
    ],
)
def test_characters_that_nobody_sees_are_shown_by_their_number(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert bounded({text: [text]}) == {shown: [shown]}
