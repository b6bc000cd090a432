"""A file that is followed: when it is applied, and when it is tried again. The clock is the test's."""

from __future__ import annotations

import itertools
from pathlib import Path

import click
import pytest

from meshctl.commands.watching import FIRST_PAUSE, LONGEST_PAUSE, Watch
from meshctl.failures import ExitCode, MeshctlError

RESYNC = 300.0


class Followed:
    """A watch with what it has applied and told."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.applied: list[str] = []
        self.told: list[str] = []
        self.refusal = ""
        self.path = path
        self.watch = Watch(path, self._apply, self._tell, RESYNC, lambda: self.now)

    def look(self, after: float = 0.0) -> None:
        self.now += after
        self.watch.look()

    def _apply(self, text: str) -> None:
        self.applied.append(text)
        if self.refusal:
            raise MeshctlError(self.refusal, ExitCode.UNAVAILABLE)

    def _tell(self, error: click.ClickException) -> None:
        self.told.append(error.message)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    path = tmp_path / "mesh.yaml"
    path.write_text("one", encoding="utf-8")
    return Followed(path)


def test_it_is_applied_at_once_and_whenever_its_text_changes(followed: Followed) -> None:
    followed.look()
    followed.look(after=RESYNC / 2)
    followed.path.write_text("two", encoding="utf-8")
    followed.look()
    assert followed.applied == ["one", "two"]


def test_it_is_applied_again_after_a_time_since_somebody_may_have_changed_the_mesh(followed: Followed) -> None:
    followed.look()
    followed.look(after=RESYNC - 1)
    assert followed.applied == ["one"]
    followed.look(after=1)
    assert followed.applied == ["one", "one"]


def test_a_failure_is_told_and_tried_again_less_and_less_often(followed: Followed) -> None:
    followed.refusal = "control is away"
    tries = []
    for second in range(600):
        before = len(followed.applied)
        followed.look(after=1)
        if len(followed.applied) > before:
            tries.append(second)
    pauses = [later - sooner for sooner, later in itertools.pairwise(tries)]
    assert pauses[0] == FIRST_PAUSE and pauses == sorted(pauses) and pauses[-1] == LONGEST_PAUSE
    assert set(followed.told) == {"control is away"} and len(followed.told) == len(tries)
    followed.refusal = ""
    followed.look(after=LONGEST_PAUSE)
    followed.look(after=LONGEST_PAUSE)
    assert followed.applied[len(tries) :] == ["one"], "all is well, until the file changes or it is time"


def test_another_text_does_not_wait_for_the_next_try(followed: Followed) -> None:
    followed.refusal = "line 3: no such cluster"
    for _ in range(5):
        followed.look(after=LONGEST_PAUSE)
    followed.refusal = ""
    followed.path.write_text("mended", encoding="utf-8")
    followed.look()
    assert followed.applied[-1] == "mended"


def test_a_file_that_is_not_there_is_told_and_applied_when_it_comes(followed: Followed) -> None:
    followed.path.unlink()
    followed.look()
    followed.look(after=1)
    assert [text.endswith("can't be read: No such file or directory") for text in followed.told] == [True]
    followed.path.write_text("one", encoding="utf-8")
    followed.look()
    assert followed.applied == ["one"]
