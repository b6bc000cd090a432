"""Another driver takes over a folder between two changes of the first, even between its check and its change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from services.pipeline.storage.hadoop import HadoopFolder


@contextmanager
def taken_over(take_over: Callable[[], object], *, at: int) -> Iterator[list[str]]:
    """Another driver does its work right before the change of this number; yields the changes of the first driver."""
    changes: list[str] = []
    is_others = False

    def before(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*given: Any) -> Any:
            nonlocal is_others
            if not is_others:
                changes.append(f"{change.__name__} {given[1:]}")
                if len(changes) == at:
                    is_others = True
                    take_over()
                    is_others = False
            return change(*given)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_delete", "_rename"):
            patch.setattr(HadoopFolder, name, before(getattr(HadoopFolder, name)))
        yield changes
