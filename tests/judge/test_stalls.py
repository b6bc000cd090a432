"""A stall in the middle of a move begins when all gateways have said HELD, and at no other time."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from judge.faults.fault import Fault
from judge.faults.nemesis import Nemesis
from judge.faults.stalls import Stalling, Stalls
from judge.history import Kind
from judge.recorder import Recorder
from judge.systems.mesh import held_by_all

WITHIN_S = 60.0


class Endpoint:
    """Its gateways hold from the revision that a test gives."""

    def __init__(self) -> None:
        self.held = 5
        self.stands = threading.Event()
        self.recorder = Recorder()
        fault = Fault("freeze", self.stands.set, lambda: None, longest_s=0.3, parts=frozenset({"broker"}))
        self.stalling = Stalling(Stalls([fault], lambda: self.held), Nemesis([], self.recorder))

    @property
    def faults(self) -> list[str]:
        return [each.note for each in self.recorder.told(0, "").of_kind(Kind.FAULT)]


def test_a_stall_begins_as_soon_as_all_gateways_hold() -> None:
    endpoint = Endpoint()
    with endpoint.stalling.behind_held(random.Random(0)):
        assert not endpoint.stands.is_set(), "revision 5 was held before this move"
        endpoint.held = 6
        assert endpoint.stands.wait(WITHIN_S)
    assert endpoint.faults == ["freeze"]


def test_a_move_that_nobody_holds_for_has_no_stall() -> None:
    endpoint = Endpoint()
    with endpoint.stalling.behind_held(random.Random(0)):
        pass
    assert endpoint.faults == []


def test_a_gateway_holds_while_it_keeps_the_table_of_a_move(tmp_path: Path) -> None:
    gateways = [tmp_path / "gateway-1", tmp_path / "gateway-2"]
    for folder in gateways:
        folder.mkdir()
    assert held_by_all(gateways) == 0
    (gateways[0] / "held-table-9.pb").touch()
    assert held_by_all(gateways) == 0, "one of two"
    (gateways[1] / "held-table-9.pb").touch()
    (gateways[1] / "held-table-8.pb").touch()
    assert held_by_all(gateways) == 9
