"""What the benchmarks share: the sheet of figures, written when all are done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.figures import Sheet

SHEET = Path(__file__).resolve().parents[2] / "build" / "bench.md"


@pytest.fixture(scope="session")
def sheet() -> Iterator[Sheet]:
    made = Sheet()
    yield made
    made.write(SHEET)
    print(f"\nwritten to {SHEET}")


@pytest.fixture(scope="session")
def rounds() -> int:
    """MESH_BENCH_ROUNDS: more rounds, steadier medians."""
    return int(os.environ.get("MESH_BENCH_ROUNDS", "3"))
