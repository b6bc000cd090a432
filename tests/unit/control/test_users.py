"""Users as decisions: set, deleted and brought back, what the log makes of it, and no verifier anywhere in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.message import Message

from mesh.connection_security import Mechanism
from mesh.rpc import events, users
from mesh.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_HASHES, NotAVerifierError, Verifier
from mesh.scram_codec import verifier_from_proto, verifier_to_proto
from mesh.user_tables import MOST_USERS
from services.control.domain.change_control.freezing import FREED
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.past.snapshots import view_from_bytes, view_to_bytes
from services.control.domain.users.users import (
    MOST_DELETED,
    Users,
    delete_user,
    fold_users,
    restore_user,
    set_user,
)
from services.control.domain.view import MeshView, apply
from services.control.presentation.sentences import Known, sentences
from services.control.presentation.users import explanation
from services.control.store.drafts import PAYLOADS

VERIFIERS = {each: Verifier.of_password(each, "correct horse", salt=b"s" * 24) for each in SCRAM_HASHES}
BOTH = [verifier_to_proto(each) for each in VERIFIERS.values()]


def event(position: int, payload: Message) -> events.Event:
    made = events.Event(position=position, stream="users/shop", actor="root", reason="new here")
    made.time.FromSeconds(position)
    getattr(made, PAYLOADS[type(payload)]).CopyFrom(payload)
    return made


def after(*payloads: Message) -> Users:
    known = Users()
    for position, payload in enumerate(payloads, 1):
        known = fold_users(known, event(position, payload))
    return known


def changed(verifier: users.ScramVerifier, **fields: object) -> users.ScramVerifier:
    made = users.ScramVerifier()
    made.CopyFrom(verifier)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


SET = set_user(Users(), "shop", BOTH)


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_a_verifier_comes_back_from_its_message(mechanism: Mechanism) -> None:
    assert verifier_from_proto(verifier_to_proto(VERIFIERS[mechanism])) == VERIFIERS[mechanism]


@pytest.mark.parametrize(
    "fields", [{"mechanism": 9}, {"iterations": 0}, {"salt": b""}, {"stored_key": b"short"}, {"server_key": b""}]
)
def test_a_message_that_holds_no_verifier_is_refused_without_its_keys(fields: dict[str, object]) -> None:
    wrong = changed(BOTH[0], **fields)
    with pytest.raises(NotAVerifierError) as refusal:
        verifier_from_proto(wrong)
    assert repr(wrong.stored_key)[2:-1] not in str(refusal.value) or wrong.stored_key == b"short"


def test_an_event_names_mechanisms_and_iterations_and_no_part_of_a_verifier() -> None:
    body = event(1, SET).SerializeToString()
    assert [(each.mechanism, each.iterations) for each in SET.mechanisms] == [(1, MIN_ITERATIONS), (2, MIN_ITERATIONS)]
    for verifier in VERIFIERS.values():
        for part in (verifier.salt, verifier.stored_key, verifier.server_key):
            assert part not in body


def test_a_user_is_set_deleted_and_brought_back_with_the_mechanisms_of_before() -> None:
    known = after(SET)
    assert known.present["shop"].revision == 1
    known = after(SET, delete_user(known, "shop"))
    assert "shop" not in known.present
    gone = known.find("shop")
    assert gone is not None
    assert (gone.deleted, gone.revision, len(gone.mechanisms)) == (True, 2, 2)
    known = after(SET, events.UserDeleted(name="shop"), restore_user(known, "shop", has_verifiers=True))
    assert (known.present["shop"].revision, list(known.present["shop"].mechanisms)) == (3, list(SET.mechanisms))
    assert not known.deleted


def test_a_user_who_is_set_again_is_no_deleted_user() -> None:
    known = after(SET, events.UserDeleted(name="shop"), SET)
    assert (list(known.present), list(known.deleted)) == (["shop"], [])


def test_a_deleted_user_whose_verifiers_are_gone_needs_a_password() -> None:
    known = after(SET, events.UserDeleted(name="shop"))
    with pytest.raises(NotAllowed, match="keeps the verifiers of shop no longer"):
        restore_user(known, "shop", has_verifiers=False)
    with pytest.raises(NotAllowed, match="is not deleted"):
        restore_user(after(SET), "shop", has_verifiers=True)
    with pytest.raises(Unknown, match="remembers no deleted user bob"):
        restore_user(known, "bob", has_verifiers=True)
    with pytest.raises(Unknown, match="there is no user shop"):
        delete_user(known, "shop")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "a\0"])
def test_a_name_has_bounds(name: str) -> None:
    with pytest.raises(InvalidField, match="is no name"):
        set_user(Users(), name, BOTH)


@pytest.mark.parametrize(
    ("verifiers", "said"),
    [
        ([], "is empty"),
        ([BOTH[0], BOTH[0]], "two for one mechanism"),
        ([changed(BOTH[0], iterations=MIN_ITERATIONS - 1)], "4095 iterations"),
        ([changed(BOTH[0], iterations=MAX_ITERATIONS + 1)], "16385 iterations"),
        ([changed(BOTH[0], mechanism=0)], "0 is no mechanism"),
        ([BOTH[0], changed(BOTH[1], server_key=b"short")], r"verifiers\[1\].*have 64 bytes"),
    ],
)
def test_a_wrong_verifier_is_refused(verifiers: list[users.ScramVerifier], said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        set_user(Users(), "shop", verifiers)


def test_there_are_as_many_users_as_fit_and_those_may_still_change() -> None:
    full = Users({f"u{number}": users.User() for number in range(MOST_USERS)}, {"gone": users.User()})
    with pytest.raises(NotAllowed, match="10000 users, and no more"):
        set_user(full, "shop", BOTH)
    with pytest.raises(NotAllowed, match="10000 users, and no more"):
        restore_user(full, "gone", has_verifiers=True)
    assert set_user(full, "u7", BOTH).name == "u7"


def test_the_first_deleted_user_is_forgotten_first() -> None:
    deleted = {f"u{number}": users.User() for number in range(MOST_DELETED)}
    known = fold_users(replace(after(SET), deleted=deleted), event(2, events.UserDeleted(name="shop")))
    assert len(known.deleted) == MOST_DELETED
    assert "u0" not in known.deleted
    assert "shop" in known.deleted


def test_other_events_leave_the_very_same_users() -> None:
    known = after(SET)
    assert fold_users(known, event(2, events.MeshThawed())) is known
    assert fold_users(known, event(2, events.UserDeleted(name="bob"))) is known


def test_users_are_in_snapshots() -> None:
    view = MeshView()
    for position, payload in enumerate((SET, events.UserDeleted(name="shop"), set_user(Users(), "bob", BOTH)), 1):
        view = apply(view, event(position, payload))
    assert view.routing_position == 0
    assert view_from_bytes(view_to_bytes(view)).users == view.users


def test_decisions_and_users_are_explained_in_sentences() -> None:
    told = [
        sentences(event(1, each), Known())
        for each in (SET, events.UserDeleted(name="shop"), events.UserRestored(name="shop"))
    ]
    assert told == [
        ["user shop logs in by SCRAM-SHA-256 and SCRAM-SHA-512"],
        ["user shop is deleted"],
        ["user shop is back, with the verifiers of before"],
    ]
    by = "by decision 1 of root (new here)"
    assert explanation("shop", after(SET).find("shop")) == f"shop can log in by SCRAM-SHA-256 and SCRAM-SHA-512, {by}"
    gone = after(SET, events.UserDeleted(name="shop")).find("shop")
    assert "the user is deleted, by decision 2 of root" in explanation("shop", gone)
    assert "no decision" in explanation("bob", None)


def test_a_frozen_mesh_takes_only_the_deletion() -> None:
    assert events.UserDeleted in FREED
    assert not {events.UserSet, events.UserRestored} & set(FREED)
