"""A browser, and what judges its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.console.browser import Browser, axe_source, browser


@pytest.fixture(scope="session")
def axe() -> str:
    return axe_source()


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "profile") as made:
        yield made
