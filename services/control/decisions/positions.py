"""Positions in the log: the position at which a decision stands, and revisions that callers name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.control.domain.errors import InvalidField
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer


async def appended(
    journal: Journal,
    drafts: Sequence[Draft],
    otherwise: int,
    caller: Caller,
    view: MeshView,
    rests_on: Callable[[MeshView], object],
    answer: Callable[[int], StoredAnswer | None],
) -> int:
    """Appends a decision on `view`; returns the position of its last event, or `otherwise` if nothing changes.

    `answer`: the answer to store for a request_id, given this position. Conflict as `Journal.append` has it.
    """
    if not drafts and not caller.request_id:
        return otherwise
    new = await journal.append(
        drafts,
        caller,
        view,
        rests_on=rests_on,
        answer=lambda new, _: answer(new[-1].position if new else otherwise),
    )
    return new[-1].position if new else otherwise


def check_revision(view: MeshView, revision: int, field: str) -> None:
    """InvalidField if the log does not have this revision, which a request names in `field`."""
    if not 1 <= revision <= view.position:
        raise InvalidField(field, f"{revision} is no revision so far: the log has the positions 1 to {view.position}")
