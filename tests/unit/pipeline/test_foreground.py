"""What commands share: how they are told to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.rpc.tls import RpcTls
from services.pipeline.commands.foreground import CONTROL_FOUND, FoundControl, settings_of, stop_signal

COMES_S = 30.0


@pytest.fixture(autouse=True)
def handlers_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_job(number: signal.Signals) -> None:
    stopping = stop_signal()
    assert not stopping.is_set()
    signal.raise_signal(number)
    assert stopping.wait(COMES_S)


@pytest.mark.timeout(60)
def test_a_signal_that_comes_while_the_job_looks_at_the_event_stops_it_too() -> None:
    stopping = stop_signal()
    with stopping._cond:  # type: ignore[attr-defined]  # as `wait` has it for a moment each time
        signal.raise_signal(signal.SIGTERM)
    assert stopping.wait(COMES_S)


def test_control_is_where_the_mesh_was_found_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/state/certificates/pipeline")
    found = CONTROL_FOUND.set(FoundControl("127.0.0.1:18002", folder))
    try:
        settings = settings_of(None)
        assert (settings.control_addresses, settings.rpc_tls) == (("127.0.0.1:18002",), RpcTls(folder))
        monkeypatch.setenv("KAFKA_MESH_PIPELINE_CONTROL_ADDRESSES", "control:7070")
        settings = settings_of(None)
        assert (settings.control_addresses, settings.rpc_tls) == (("control:7070",), None)
    finally:
        CONTROL_FOUND.reset(found)
