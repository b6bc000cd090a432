"""Grants as decisions: what is granted, taken and brought back, and what the log makes of it."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from mesh.rpc import access, events, grants
from services.control.domain.access.grants import (
    MOST_GRANTS,
    Grants,
    bring_back,
    fold_grants,
    grant,
    in_order,
    revoke,
)
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.past.snapshots import view_from_bytes, view_to_bytes
from services.control.domain.view import MeshView, apply
from services.control.presentation.sentences import Known, sentences
from services.control.store.drafts import PAYLOADS

VIEWER, OPERATOR, ADMIN = access.ROLE_VIEWER, access.ROLE_OPERATOR, access.ROLE_ADMIN
ALL = access.ROLE_UNSPECIFIED


def role(principal: str, role: access.Role.ValueType, **narrowing: list[str]) -> grants.Grant:
    made = grants.Grant(principal=principal, role=role)
    if narrowing:
        made.narrowing.CopyFrom(grants.Narrowing(**narrowing))
    return made


def event(position: int, payload: Message) -> events.Event:
    made = events.Event(position=position, stream="access/ada", actor="root", reason="new here")
    made.time.FromSeconds(position)
    getattr(made, PAYLOADS[type(payload)]).CopyFrom(payload)
    return made


def after(known: Grants, *payloads: Message | None, start: int = 1) -> Grants:
    for position, payload in enumerate(payloads, start):
        assert payload is not None
        known = fold_grants(known, event(position, payload))
    return known


def granted(known: Grants, wanted: grants.Grant, *, in_addition: bool = False) -> Grants:
    start = 1 + max((each.revision for each in in_order(known)), default=0)
    return after(known, grant(known, wanted, in_addition=in_addition), start=start)


def texts(known: Grants) -> list[tuple[str, int, list[str]]]:
    return [(each.principal, each.role, list(each.narrowing.topic_prefixes)) for each in in_order(known)]


def test_a_grant_replaces_the_one_of_the_same_role_and_keeps_other_roles() -> None:
    known = granted(granted({}, role("ada", VIEWER)), role("ada", OPERATOR, topic_prefixes=["shop."]))
    assert texts(known) == [("ada", VIEWER, []), ("ada", OPERATOR, ["shop."])]
    known = granted(known, role("ada", OPERATOR, topic_prefixes=["till."]))
    assert texts(known) == [("ada", VIEWER, []), ("ada", OPERATOR, ["till."])]
    known = granted(known, role("ada", OPERATOR, topic_prefixes=["shop."]), in_addition=True)
    assert texts(known)[1:] == [("ada", OPERATOR, ["till."]), ("ada", OPERATOR, ["shop."])]


def test_a_grant_says_who_granted_it_and_when_and_why() -> None:
    [made] = in_order(granted({}, role("ada", VIEWER)))
    assert (made.revision, made.actor, made.reason, made.time.seconds) == (1, "root", "new here", 1)


def test_a_grant_that_exists_is_no_decision_unless_it_takes_others_away() -> None:
    known = granted({}, role("ada", OPERATOR, topic_prefixes=["shop."]))
    assert grant(known, role("ada", OPERATOR, topic_prefixes=["shop."]), in_addition=False) is None
    known = granted(known, role("ada", OPERATOR, topic_prefixes=["till."]), in_addition=True)
    assert grant(known, role("ada", OPERATOR, topic_prefixes=["shop."]), in_addition=True) is None
    assert texts(granted(known, role("ada", OPERATOR, topic_prefixes=["shop."]))) == [("ada", OPERATOR, ["shop."])]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (role("", VIEWER), "grant.principal"),
        (role("two words", VIEWER), "grant.principal"),
        (role("group:", VIEWER), "grant.principal"),
        (role("ada", access.ROLE_GATEWAY), "grant.role"),
        (role("ada", ALL), "grant.role"),
        (role("ada", VIEWER, clusters=["c 1"]), "grant.narrowing.clusters"),
        (role("ada", VIEWER, topic_prefixes=[""]), "grant.narrowing.topic_prefixes"),
        (role("ada", VIEWER, sidecars=["x"] * 101), "grant.narrowing.sidecars"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(wanted: grants.Grant, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        grant({}, wanted, in_addition=False)
    assert refused.value.field == field


def test_a_principal_has_a_bounded_number_of_grants() -> None:
    known: Grants = {}
    for number in range(MOST_GRANTS):
        known = granted(known, role("ada", VIEWER, topic_prefixes=[f"t{number}."]), in_addition=True)
    with pytest.raises(NotAllowed, match="name several things in one"):
        grant(known, role("ada", VIEWER, topic_prefixes=["more."]), in_addition=True)


def test_one_role_is_taken_and_the_others_stay() -> None:
    known = granted(granted({}, role("ada", VIEWER)), role("ada", OPERATOR))
    known = after(known, revoke(known, "ada", OPERATOR, ()), start=3)
    assert texts(known) == [("ada", VIEWER, [])]
    with pytest.raises(Unknown, match=r"no grant of the role operator \(has: viewer\)"):
        revoke(known, "ada", OPERATOR, ())


def test_all_rights_are_taken_also_of_somebody_about_whom_nothing_was_decided() -> None:
    known = after({}, revoke({}, "vera", ALL, ()))
    assert known["vera"].is_shut_out
    assert revoke(known, "vera", ALL, ()) is None
    assert not granted(known, role("vera", VIEWER))["vera"].is_shut_out


def test_a_first_admin_stays_one() -> None:
    for taken in (ALL, ADMIN):
        with pytest.raises(NotAllowed, match="first_admins"):
            revoke({}, "root", taken, ["root"])
    known = granted({}, role("root", VIEWER))
    assert revoke(known, "root", VIEWER, ["root"]) is not None


def test_earlier_grants_come_back() -> None:
    then = granted(granted({}, role("ada", VIEWER)), role("bob", OPERATOR, topic_prefixes=["shop."]))
    now = after(then, revoke(then, "bob", ALL, ()), start=3)
    now = granted(granted(now, role("ada", ADMIN)), role("eve", ADMIN))
    payloads = bring_back(now, then)
    back = after(now, *payloads, start=10)
    assert texts(back) == texts(then)
    assert back["eve"].is_shut_out
    assert not bring_back(back, then)


def test_grants_are_in_the_view_and_in_snapshots() -> None:
    view = apply(MeshView(), event(1, events.RoleGranted(grant=role("ada", OPERATOR, clusters=["c1"]))))
    view = apply(view, event(2, events.RoleRevoked(principal="vera")))
    assert view.routing_position == 0
    assert view_from_bytes(view_to_bytes(view)).grants == view.grants
    assert [*view.grants] == ["ada", "vera"]


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (
            events.RoleGranted(grant=role("ada", OPERATOR, clusters=["c1"], topic_prefixes=["shop."])),
            "ada is operator for topics shop.* on clusters c1",
        ),
        (
            events.RoleGranted(grant=role("ada", VIEWER, sidecars=["till"]), in_addition=True),
            "ada is viewer at sidecars till, beside its other grants of this role",
        ),
        (
            events.RoleGranted(grant=grants.Grant(principal="ci", role=OPERATOR, on_behalf_of_others=True)),
            "ci is operator, with the right to call on behalf of others",
        ),
        (events.RoleRevoked(principal="ada", role=OPERATOR), "ada is operator no more"),
        (events.RoleRevoked(principal="ada"), "ada has no rights any more"),
    ],
)
def test_the_history_says_who_is_what(payload: Message, sentence: str) -> None:
    assert sentences(event(1, payload), Known()) == [sentence]
