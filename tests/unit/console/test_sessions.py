"""Log-ins have an end, and a number."""

from __future__ import annotations

import time

import jwt

from services.console.sessions import FormKeys, Sessions, end_of, is_token


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def store(clock: Clock, most: int = 3) -> Sessions:
    return Sessions(most=most, life_s=100.0, idle_s=30.0, clock=clock)


def test_a_session_is_found_by_its_name_alone() -> None:
    sessions = store(Clock())
    name = sessions.open("a token")
    found = sessions.find(name)
    assert found is not None
    assert found.token == "a token"
    assert sessions.find(name[:-1]) is None
    assert sessions.find("") is None
    assert "a token" not in repr(found)


def test_an_idle_session_ends_and_a_used_one_goes_on_until_its_longest_life() -> None:
    clock = Clock()
    sessions = store(clock)
    idle, used = sessions.open("a"), sessions.open("b")
    for _ in range(4):
        clock.now += 24
        assert sessions.find(used) is not None
    assert sessions.find(idle) is None
    clock.now += 4.5
    assert sessions.find(used) is None
    assert len(sessions) == 0


def test_a_look_does_not_keep_a_session() -> None:
    clock = Clock()
    sessions = store(clock)
    name = sessions.open("a")
    clock.now += 29
    assert sessions.peek(name) is not None
    clock.now += 2
    assert sessions.peek(name) is None


def test_a_session_ends_with_its_token() -> None:
    clock = Clock()
    sessions = store(clock)
    name = sessions.open(jwt.encode({"exp": clock.now + 10}, "k" * 32, "HS256"))
    assert sessions.find(name) is not None
    clock.now += 10
    assert sessions.find(name) is None


def test_one_more_than_the_most_ends_the_one_that_is_idle_for_longest() -> None:
    sessions = store(Clock(), most=2)
    first, second = sessions.open("a"), sessions.open("b")
    sessions.find(first)
    third = sessions.open("c")
    assert [sessions.find(name) is not None for name in (first, second, third)] == [True, False, True]


def test_a_closed_session_is_gone() -> None:
    sessions = store(Clock())
    name = sessions.open("a")
    sessions.close(name)
    sessions.close(name)
    assert sessions.find(name) is None


def test_a_key_of_a_form_fits_one_browser_and_one_process() -> None:
    keys = FormKeys()
    assert keys.fits("ada", keys.key("ada"))
    assert not keys.fits("eve", keys.key("ada"))
    assert not keys.fits("", keys.key(""))
    assert not keys.fits("ada", "é")
    assert not FormKeys().fits("ada", keys.key("ada"))


def test_the_end_of_a_token_is_its_claim_if_it_has_one() -> None:
    ends = int(time.time()) + 60
    assert end_of(jwt.encode({"exp": ends}, "k" * 32, "HS256")) == ends
    assert end_of(jwt.encode({"sub": "ada"}, "k" * 32, "HS256")) is None
    for text in ("opaque", "a.b.c", "a.!.c", "", "a.W10.c"):
        assert end_of(text) is None


def test_a_token_is_one_word_that_a_header_can_carry() -> None:
    assert is_token("abc.def")
    for text in ("", "two words", "line\nbreak", "né", "x" * 20_000, "tab\tbed"):
        assert not is_token(text)
