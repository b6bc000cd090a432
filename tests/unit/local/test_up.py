"""What `kafka-mesh up` looks at before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.layout import Layout, parse_ports
from local.services import PORTS
from local.up import EXIT_NOT_STARTED, up
from tests.fixtures.ports import free_block


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
