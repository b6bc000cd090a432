"""What `kafka-mesh up` looks at before it starts anything, and what it does while all runs."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from local.certificates import LIFE, write_certificates
from local.layout import Layout, parse_ports
from local.services import PORTS
from local.up import EXIT_NOT_STARTED, keep_certificates, up
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import until

CHECK_S = 0.02


def test_a_given_cluster_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = Layout(
        state=tmp_path,
        ports=parse_ports(free_block(len(PORTS)), (), {}),
        clusters={"west": "127.0.0.1:1,127.0.0.1:2"},
        database="postgresql://me@127.0.0.1:3/mesh",
    )
    assert up(layout) == EXIT_NOT_STARTED
    said = capsys.readouterr().out
    assert "cluster west does not answer: 127.0.0.1:1: [Errno" in said
    assert "127.0.0.1:2: [Errno" in said
    assert not (tmp_path / "log").exists()


@asynccontextmanager
async def kept(layout: Layout) -> AsyncIterator[io.StringIO]:
    """The lines that `up` prints while it keeps the certificates."""
    printed = io.StringIO()
    keeping = asyncio.create_task(keep_certificates(layout, Console(file=printed, width=200), CHECK_S))
    try:
        yield printed
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def test_certificates_are_renewed_while_the_mesh_runs(tmp_path: Path) -> None:
    layout = Layout(state=tmp_path)
    write_certificates(layout.certificates, layout.owners(), datetime.now(UTC) - LIFE * 0.9)
    file = layout.certificates / "sidecar" / "tls.crt"
    before = file.read_bytes()
    async with kept(layout) as printed:
        await until(lambda: printed.getvalue().count("is renewed") == len(layout.owners()), "all are renewed")
        assert "certificate of sidecar sidecar-1 is renewed" in printed.getvalue()
    assert file.read_bytes() != before


async def test_a_renewal_that_fails_is_said_and_tried_again(tmp_path: Path) -> None:
    layout = Layout(state=tmp_path)
    layout.certificates.touch()  # in the place of the folder
    async with kept(layout) as printed:
        await until(lambda: "can't be renewed" in printed.getvalue(), "the failure is printed")
        layout.certificates.unlink()
        await until(lambda: "is renewed" in printed.getvalue(), "the next attempt succeeds")
