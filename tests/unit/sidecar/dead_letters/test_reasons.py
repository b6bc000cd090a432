"""What the header dlq.reason can be is one list: the contract's, by which control and meshctl choose dead letters."""

from __future__ import annotations

from mesh.rpc.dead_letters import REASONS
from services.sidecar.records import Reason


def test_reasons_are_those_of_the_contract() -> None:
    assert sorted(each.value for each in Reason) == list(REASONS)
