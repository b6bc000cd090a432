"""Helm, kubeconform and the schemas, before the first test: the time-out of a test does not count their first build."""

from __future__ import annotations

import pytest

from tests.kubernetes import tools


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    tools.program("helm")
    tools.program("kubeconform")
    tools.schemas()
