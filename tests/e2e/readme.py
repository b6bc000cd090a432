"""The commands of README.md, as they stand there: tests run the text that a newcomer pastes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.fixtures.meshes import BIN

README = Path(__file__).parents[2] / "README.md"
COMMAND_TIMEOUT_S = 90.0
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONTINUED = re.compile(r"\\\n\s*")


def blocks(section: str) -> list[list[str]]:
    """The commands of each sh block below the heading; a line that a backslash continues is one command."""
    text = README.read_text(encoding="utf-8")
    _, found, after = text.partition(f"\n## {section}\n")
    assert found, f"{README} has no section {section!r}"
    body, _, _ = after.partition("\n## ")
    return [_CONTINUED.sub("", block).splitlines() for block in _BLOCK.findall(body)]


def command(section: str, beginning: str) -> str:
    """The one command of the section that begins so."""
    found = [line for block in blocks(section) for line in block if line.startswith(beginning)]
    assert len(found) == 1, f"{README}, {section!r}: {len(found)} commands begin with {beginning!r}"
    return found[0]


def paste(line: str, folder: Path) -> str:
    """What the line prints in a checkout whose environment is this one, and whose mesh is that of `folder`."""
    here = line.replace(".venv/bin/", f"{BIN}/").replace(" examples/", f" {README.parent}/examples/")
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", here],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, f"{line}\nexit {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout
