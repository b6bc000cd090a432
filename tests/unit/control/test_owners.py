"""Owners of topics: what control takes, and how the log tells them."""

from __future__ import annotations

import pytest

from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.past.snapshots import view_from_bytes, view_to_bytes
from services.control.domain.topics import owners
from services.control.domain.topics.owners import Owner, Owners, fold_owners, owner_of, set_owner
from services.control.domain.view import MeshView


def after(known: Owners, topic: str, owner: str, position: int = 7) -> Owners:
    made = set_owner(known, topic, owner)
    assert made is not None
    return fold_owners(known, events.Event(position=position, topic_owner_set=made))


def test_a_topic_gets_an_owner_then_another_then_none() -> None:
    known = after({}, "apples", "team-x")
    known = after(known, "pears", "ada@shop.example", 8)
    assert owner_of(known, "apples") == "team-x"
    known = after(known, "apples", "teams/y", 9)
    assert known["apples"] == Owner("teams/y", 9)
    known = after(known, "apples", "", 10)
    assert owner_of(known, "apples") == ""
    assert owner_of(known, "pears") == "ada@shop.example"


def test_the_same_owner_again_decides_nothing() -> None:
    assert set_owner(after({}, "apples", "team-x"), "apples", "team-x") is None
    assert set_owner({}, "apples", "") is None


@pytest.mark.parametrize("owner", [" ", "-x", "a b", "<b>", "x\n", "x" * 101, "\u00e4"])
def test_a_text_that_is_no_owner_is_refused(owner: str) -> None:
    with pytest.raises(InvalidField, match="is no owner: 1 to 100"):
        set_owner({}, "apples", owner)


def test_the_number_of_owners_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "MOST", 1)
    known = after({}, "apples", "team-x")
    with pytest.raises(NotAllowed, match="1 topics have an owner"):
        set_owner(known, "pears", "team-x")
    assert owner_of(after(known, "apples", "team-y"), "apples") == "team-y"


def test_a_snapshot_keeps_owners() -> None:
    view = MeshView(owners=after({}, "apples", "team-x"))
    assert view_from_bytes(view_to_bytes(view)) == view
