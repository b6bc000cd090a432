"""The subscriptions that control has declared, on the sidecar's disk."""

from __future__ import annotations

from pathlib import Path

from mesh.rpc import subscriptions as rpc
from services.sidecar.control.declared_subscriptions import DeclaredSubscriptions
from services.sidecar.state.state_file import StateFile

CONTENT = rpc.SubscriptionsOfSidecar(
    digest="one",
    subscriptions=[rpc.DeclaredSubscription(name="orders", spec=rpc.SubscriptionSpec(topics=["orders"], linger_ms=0))],
)


def at(folder: Path, *, are_taken: bool = True) -> DeclaredSubscriptions:
    """As a new process finds them."""
    found = DeclaredSubscriptions(StateFile(folder / "subscriptions.control"), are_taken=are_taken)
    found.load()
    return found


async def test_a_new_process_has_them_with_their_digest(tmp_path: Path) -> None:
    first = at(tmp_path)
    assert (list(first), first.digest) == ([], "")
    await first.take(CONTENT)
    assert first.changed.is_set()
    second = at(tmp_path)
    assert list(second) == list(CONTENT.subscriptions)
    assert second.digest == "one"
    await second.take(rpc.SubscriptionsOfSidecar(digest="none"))
    assert list(at(tmp_path)) == []


async def test_members_that_this_release_does_not_know_stay_on_disk(tmp_path: Path) -> None:
    unknown = rpc.SubscriptionsOfSidecar.FromString(CONTENT.SerializeToString())
    later = rpc.SubscriptionSpec.FromString(unknown.subscriptions[0].spec.SerializeToString() + b"\xfa\x3f\x03new")
    unknown.subscriptions[0].spec.CopyFrom(later)
    await at(tmp_path).take(unknown)
    (kept,) = at(tmp_path)
    assert kept.spec.SerializeToString() == later.SerializeToString()


async def test_a_damaged_file_is_set_aside_and_control_sends_them_again(tmp_path: Path) -> None:
    await at(tmp_path).take(CONTENT)
    StateFile(tmp_path / "subscriptions.control").save(b"\xff\xff\xff")
    assert at(tmp_path).digest == ""
    assert (tmp_path / "subscriptions.control.broken").exists()


async def test_a_sidecar_that_takes_none_reads_none(tmp_path: Path) -> None:
    await at(tmp_path).take(CONTENT)
    assert list(at(tmp_path, are_taken=False)) == []
