"""Which worker gets the next connection."""

from collections.abc import Sequence

from services.gateway.workers.balance import BEHIND, Load, by_load


def the_first(equals: Sequence[Load]) -> Load:
    return equals[0]


def the_last(equals: Sequence[Load]) -> Load:
    return equals[-1]


def give(loads: Sequence[Load], count: int = 1) -> None:
    for _ in range(count):
        by_load(loads)[0].handed += 1


def test_connections_are_even_to_one_however_many() -> None:
    for count in (8, 64, 200):
        loads = [Load(1), Load(2), Load(3)]
        give(loads, count)
        held = [load.connections for load in loads]
        assert max(held) - min(held) <= 1


def test_one_whose_clients_have_left_gets_the_next_ones() -> None:
    loads = [Load(1), Load(2)]
    give(loads, 8)
    loads[1].taken, loads[1].open = 4, 1
    give(loads, 3)
    assert [load.connections for load in loads] == [4, 4]


def test_among_equals_it_is_not_always_the_same_one() -> None:
    """A client opens an idle connection, then the one that works: in turns, one worker would have all idle ones."""
    one, other = Load(1), Load(2)
    assert by_load([one, other], the_first)[0] is one
    assert by_load([one, other], the_last)[0] is other


def test_a_busy_worker_gets_fewer() -> None:
    idle, busy = Load(1), Load(2)
    give([idle, busy], 8)
    busy.busy = 0.9
    give([idle, busy], 4)
    assert (idle.connections, busy.connections) == (8, 4)


def test_work_alone_does_not_decide() -> None:
    idle, busy = Load(1), Load(2, busy=0.5)
    give([idle, busy], 100)
    assert busy.connections >= 25


def test_a_trifle_of_work_counts_as_none() -> None:
    loads = [Load(1, busy=0.09), Load(2)]
    give(loads, 200)
    assert [load.connections for load in loads] == [100, 100]


def test_one_that_takes_nothing_comes_last() -> None:
    stuck, other = Load(1, handed=BEHIND + 1), Load(2, handed=500, taken=500, open=500)
    assert by_load([stuck, other]) == [other, stuck]
    stuck.taken = stuck.open = stuck.handed
    assert by_load([stuck, other]) == [stuck, other]


def test_without_workers_there_is_nobody() -> None:
    assert by_load([]) == []
