"""Two clusters and the process that carries out record rules: the same as for mirrors."""

from __future__ import annotations

from tests.integration.router.mirrors.conftest import c1, c2, process, sides, workers

__all__ = ["c1", "c2", "process", "sides", "workers"]
