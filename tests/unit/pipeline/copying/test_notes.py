"""What groups on the target remember."""

from __future__ import annotations

import pytest

from services.pipeline.copying.errors import CopyError
from services.pipeline.copying.notes import Note


@pytest.mark.parametrize("topic_id", ["V5xvJ0g-Q6yEzZ1Vw0JZLg", ""])
def test_a_note_comes_back_as_it_went(topic_id: str) -> None:
    note = Note(topic_id, start=200, end=5_000, lost=3, lane=7, position=1_200, records=1_000, lost_until=9, copy="a1")
    assert Note.of(note.position, note.metadata) == note


def test_a_note_goes_on_with_its_copies() -> None:
    note = Note("", 0, 10, 0, 0, 0).at(4, 3).at(10, 2)
    assert (note.position, note.records, note.is_done) == (10, 5, True)


@pytest.mark.parametrize("metadata", ["", "somebody's", "1 x y 1 2 3", "1 x y 1 2 3 4 5 six", "2 x y 1 2 3 4 5 6"])
def test_a_group_of_somebody_else_is_not_taken_for_progress(metadata: str) -> None:
    with pytest.raises(CopyError, match="is none of a replay's"):
        Note.of(17, metadata)
