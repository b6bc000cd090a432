"""The README's example does what the README says."""

import re
from pathlib import Path

import services.sidecar.streams as room

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_example_works() -> None:
    assert room.__file__ is not None
    blocks = BLOCK.findall((Path(room.__file__).parent / "README.md").read_text())
    assert len(blocks) == 2
    exec("\n".join(blocks), {})  # its assertions
