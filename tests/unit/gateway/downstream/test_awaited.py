"""Whether a gateway may start without a router, as the folder of its last table tells."""

from pathlib import Path

import pytest

from services.gateway.downstream.awaited import Awaited


def test_control_waits_from_the_first_table_to_the_goodbye(tmp_path: Path) -> None:
    awaited = Awaited(tmp_path / "not yet there", "g1")
    assert not awaited
    awaited.remove()
    awaited.write()
    assert Awaited(tmp_path / "not yet there", "g1")
    awaited.remove()
    assert not Awaited(tmp_path / "not yet there", "g1")


def test_workers_do_not_count_for_each_other(tmp_path: Path) -> None:
    first, second = (Awaited(tmp_path, f"g-1-{number}", is_worker=True) for number in (1, 2))
    first.write()
    assert (bool(first), bool(second)) == (True, False)
    second.write()
    first.remove()
    assert (bool(first), bool(second)) == (False, True)


@pytest.mark.parametrize("is_worker", [False, True])
def test_a_gateway_that_was_killed_counts_for_its_successor_until_a_router_has_sent_a_table(
    tmp_path: Path, is_worker: bool
) -> None:
    """The name of a gateway has its process id, unless it is set. The operator may declare the killed one dead."""
    Awaited(tmp_path, "gateway-host-77").write()
    successor = Awaited(tmp_path, "gateway-host-99-1" if is_worker else "gateway-host-99", is_worker=is_worker)
    assert successor
    successor.write()
    successor.remove()
    assert not Awaited(tmp_path, "gateway-host-111")
