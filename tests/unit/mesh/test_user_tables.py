"""Users on their way from control to gateways: pages are put together, and bad ones are refused as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh import durations
from mesh.connection_security import Mechanism
from mesh.rpc import users as pb
from mesh.rpc.channels import MAX_MESSAGE_BYTES
from mesh.scram import MAX_ITERATIONS, MAX_SALT_BYTES, Verifier
from mesh.user_files import Users
from mesh.user_tables import MOST_NAME_CHARACTERS, MOST_USERS, PAGE, PageReader, UnusableUsersError, UserTable, pages

SECRET = b"d" * 32
BOTH = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


def verifier(mechanism: Mechanism = BOTH[0], mark: int = 0, salt: bytes = b"salt") -> Verifier:
    """A verifier of no password: only its bytes matter here."""
    size = 32 if mechanism is BOTH[0] else 64
    return Verifier(mechanism, salt, 4096, bytes([mark]) * size, b"\xee" * size)


def table(edition: int, *names: str, secret: bytes = SECRET, mark: int = 0) -> UserTable:
    return UserTable(edition, Users({name: {BOTH[0]: verifier(mark=mark)} for name in names}, secret))


def read(reader: PageReader, sent: Iterable[pb.UserTablePage]) -> UserTable | None:
    """The reader's table after the last page; the pages travel as bytes."""
    *before, last = [pb.UserTablePage.FromString(each.SerializeToString()) for each in sent]
    assert [reader.take(each) for each in before] == [None] * len(before)
    return reader.take(last)


def one(name: str = "shop", **parts: object) -> pb.UserVerifiers:
    fields = {
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s",
        "stored_key": b"k" * 32,
        "server_key": b"k" * 32,
        **parts,
    }
    return pb.UserVerifiers(name=name, verifiers=[pb.ScramVerifier(**fields)])  # type: ignore[arg-type]


def test_all_users_come_in_pages_and_count_together() -> None:
    sent = table(7, *(f"user-{n}" for n in range(2 * PAGE + 1)))
    taken = list(sent.pages())
    assert [(len(each.users), each.whole, each.more) for each in taken] == [
        (PAGE, True, True),
        (PAGE, False, True),
        (1, False, False),
    ]
    assert read(PageReader(), taken) == sent


def test_no_users_are_one_page_too() -> None:
    assert read(PageReader(), table(0).pages()) == table(0)


def test_a_change_has_only_those_who_changed_and_the_table_before_stays_as_it_was() -> None:
    reader, first = PageReader(), table(3, "a", "b", "c")
    before = read(reader, first.pages())
    kept = {name: found for name, found in first.users.by_name.items() if name != "b"}
    second = UserTable(5, Users({**kept, "c": {BOTH[1]: verifier(BOTH[1])}, "d": {BOTH[0]: verifier()}}, SECRET))
    [page] = second.changes_since(first)
    assert [(each.name, len(each.verifiers)) for each in page.users] == [("b", 0), ("c", 1), ("d", 1)]
    assert read(reader, [page]) == second
    assert before == first


def test_a_page_without_users_confirms_the_very_same_table() -> None:
    reader, sent = PageReader(), table(3, "a")
    found = read(reader, sent.pages())
    [page] = sent.changes_since(sent, age_s=1.5)
    assert (page.whole, len(page.users), durations.whole_ms(page.age)) == (False, 0, 1500)
    assert read(reader, [page]) is found


def test_a_user_whose_verifiers_are_lost_keeps_those_that_the_receiver_has() -> None:
    lost = UserTable(9, table(9, "bob").users, frozenset({"shop"}))
    kept = read(PageReader(table(7, "shop", "bob")), lost.pages())
    assert kept is not None
    assert (kept.users, kept.lost) == (table(9, "shop", "bob").users, frozenset())
    assert read(PageReader(), lost.pages()) == lost


@pytest.mark.parametrize("later", [table(2, "a"), table(4, "a", secret=b"e" * 32)], ids=["older", "another secret"])
def test_an_older_table_or_another_secret_is_sent_as_a_whole(later: UserTable) -> None:
    reader = PageReader()
    first = table(3, "a", "b")
    read(reader, first.pages())
    sent = list(later.changes_since(first))
    assert sent[0].whole
    assert read(reader, sent) == later


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2) | st.none()), min_size=1, max_size=6))
def test_a_receiver_of_changes_has_what_the_sender_has(states: list[dict[str, int | None]]) -> None:
    """None is a user whose verifiers were lost before the sender had them."""

    def at(edition: int, state: dict[str, int | None]) -> UserTable:
        users = {name: {BOTH[0]: verifier(mark=mark)} for name, mark in state.items() if mark is not None}
        return UserTable(edition, Users(users, SECRET), frozenset(state.keys() - users.keys()))

    for earlier, later in pairwise(states):
        later.update({name: earlier.get(name) for name, mark in later.items() if mark is None})

    tables = [at(edition, state) for edition, state in enumerate(states)]
    reader = PageReader()
    assert read(reader, tables[0].pages()) == tables[0]
    for before, after in pairwise(tables):
        assert read(reader, after.changes_since(before)) == after


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (pages(1, [one()]), "does not begin with all users"),
        (pages(1, [one()], b"short"), "decoy secret has less than 32 bytes"),
        (pages(1, [one(iterations=4095)], SECRET), "user 'shop': 4095 iterations: expected 4096 to 16384"),
        (pages(1, [one(iterations=MAX_ITERATIONS + 1)], SECRET), "16385 iterations"),
        (pages(1, [one(stored_key=b"\xaa" * 31)], SECRET), "keys of SCRAM-SHA-256 have 32 bytes each"),
        (pages(1, [one(salt=b"\xaa" * (MAX_SALT_BYTES + 1))], SECRET), "a salt of 1025 bytes"),
        (pages(1, [one(mechanism=9)], SECRET), "9 is no mechanism with verifiers"),
        (pages(1, [one("n" * (MOST_NAME_CHARACTERS + 1))], SECRET), "has 256 characters, not 1 to 255"),
        (pages(1, [one("")], SECRET), "has 0 characters"),
    ],
)
def test_users_that_cannot_be_used_are_refused_without_a_word_about_keys(
    sent: Iterable[pb.UserTablePage], reason: str
) -> None:
    with pytest.raises(UnusableUsersError, match=reason) as refused:
        read(PageReader(), sent)
    assert "kkk" not in str(refused.value)
    assert "xaa" not in repr(refused.value)


def test_more_users_than_the_bound_are_refused_before_all_of_them_have_come() -> None:
    reader = PageReader()
    sent = pages(1, (one(f"u{n}") for n in range(MOST_USERS + 3 * PAGE)), SECRET)
    with pytest.raises(UnusableUsersError, match="more than 10000 users"):
        for page in sent:
            assert reader.take(page) is None
    assert next(sent).more, "refused in the midst of them"


def test_a_full_table_may_lose_a_user_and_get_another_at_once() -> None:
    reader = PageReader()
    first = table(1, *(f"u{n}" for n in range(MOST_USERS)))
    read(reader, first.pages())
    second = table(3, *(f"u{n}" for n in range(1, MOST_USERS + 1)))
    assert read(reader, second.changes_since(first)) == second


def test_the_longest_page_is_far_below_what_a_message_may_have() -> None:
    longest = [
        pb.UserVerifiers(
            name="\U0001f600" * MOST_NAME_CHARACTERS,
            verifiers=[
                pb.ScramVerifier(
                    mechanism=number,
                    iterations=MAX_ITERATIONS,
                    salt=bytes(MAX_SALT_BYTES),
                    stored_key=bytes(64),
                    server_key=bytes(64),
                )
                for number in (pb.SCRAM_MECHANISM_SHA_256, pb.SCRAM_MECHANISM_SHA_512)
            ],
        )
    ] * PAGE
    [page] = pages(2**62, longest, SECRET)
    assert page.ByteSize() < MAX_MESSAGE_BYTES / 10


def test_a_table_shows_no_part_of_a_verifier() -> None:
    sent = table(1, "shop", mark=0x6B)
    shown = f"{sent!r} {sent} {sent.users!r}"
    assert "kkk" not in shown
    assert "ddd" not in shown
    assert "shop" in shown


def test_a_full_table_is_read_and_sent_in_a_fraction_of_a_second() -> None:
    names = [f"user-{n}" for n in range(MOST_USERS)]
    full = UserTable(1, Users({name: {each: verifier(each) for each in BOTH} for name in names}, SECRET))
    began = time.process_time()
    read(PageReader(), full.pages())
    assert time.process_time() - began < 5, "some 0.3 s on a machine that is not busy"
