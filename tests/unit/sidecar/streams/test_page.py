"""The example of docs/how-to/topologies.md does what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "topologies.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_example_works() -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 2
    exec("\n".join(blocks), {})  # its assertions
