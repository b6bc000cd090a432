"""Two clusters and the process that carries out record rules: the same as for mirrors."""

from __future__ import annotations

from tests.integration.router.mirrors.conftest import process, workers

__all__ = ["process", "workers"]
