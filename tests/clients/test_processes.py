"""Programs of clients go on, whatever the event loop of their test does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.clients.processes import JsonLines
from tests.fixtures.waiting import wait_until

LINES = 20_000
"""Far more than a pipe takes."""
PRINTS = f"""
import pathlib, sys
for number in range({LINES}):
    print('{{"number": %d}}' % number)
sys.stdout.flush()
pathlib.Path(sys.argv[1]).touch()
"""


async def test_a_program_prints_on_while_its_test_blocks_the_event_loop(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    program = await JsonLines.start([sys.executable, "-c", PRINTS, str(tmp_path / "done")], heard.append)
    wait_until((tmp_path / "done").exists, "all is printed", 30)
    await program.end()
    assert [line["number"] for line in heard] == list(range(LINES))
