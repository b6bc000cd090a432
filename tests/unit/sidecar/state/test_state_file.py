"""The file that outlives the process: what comes back, what is set aside, what is written together."""

import asyncio
import threading
from pathlib import Path

import pytest
import structlog

from services.sidecar.state.state_file import StateFile, StateWriter
from services.sidecar.telemetry import metrics


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "new" / "state")


def test_what_was_saved_comes_back(file: StateFile) -> None:
    assert file.load() is None
    for content in (b"", b"one", b"two\nlines\n"):
        file.save(content)
        assert StateFile(file.path).load() == content
    assert [each.name for each in file.path.parent.iterdir()] == ["state"]


def test_only_its_owner_reads_it(file: StateFile) -> None:
    file.save(b"x")
    assert file.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-1],
        lambda whole: b"",
        lambda whole: b"\0" * len(whole),
        lambda whole: whole.replace(b"apples", b"pears!"),
        lambda whole: whole.replace(b"state 1 ", b"state 2 "),
    ],
    ids=["cut", "empty", "zeros", "edited", "of a later release"],
)
def test_a_file_that_is_not_as_it_was_written_is_set_aside(file: StateFile, damage: object) -> None:
    file.save(b"apples")
    assert callable(damage)
    broken = damage(file.path.read_bytes())
    file.path.write_bytes(broken)
    with structlog.testing.capture_logs() as logs:
        assert file.load() is None
    aside = file.path.with_name("state.broken")
    assert aside.read_bytes() == broken
    assert (logs[0]["log_level"], logs[0]["now"]) == ("warning", str(aside))
    assert file.load() is None  # and from then on there is none


class HeldFile(StateFile):
    """A disk that is slow until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.saved: list[bytes] = []

    def save(self, content: bytes) -> None:
        self.begun.release()
        self.go.acquire()
        super().save(content)
        self.saved.append(content)


async def test_changes_that_come_while_the_disk_is_busy_are_written_together(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "state")
    changes = [0]
    writer = StateWriter(file, lambda: str(changes[0]).encode())
    first = asyncio.create_task(writer.written())
    await asyncio.to_thread(file.begun.acquire)
    later = []
    for changes[0] in range(1, 11):  # each change is there before its write is asked for
        later.append(asyncio.create_task(writer.written()))
        await asyncio.sleep(0)
    assert not first.done()
    for _ in range(2):
        file.go.release()
    assert await asyncio.gather(first, *later) == [True] * 11
    assert file.saved == [b"0", b"10"]


async def test_a_caller_that_goes_away_stops_no_write(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "state")
    writer = StateWriter(file, lambda: b"kept")
    gone, stays = (asyncio.create_task(writer.written()) for _ in range(2))
    await asyncio.to_thread(file.begun.acquire)
    gone.cancel()
    file.go.release()
    assert await stays
    assert file.load() == b"kept"


async def test_a_disk_that_refuses_is_said_and_the_next_write_is_tried(tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.write_text("a file where the folder should be")
    file = StateFile(folder / "state")
    writer = StateWriter(file, lambda: b"x")
    before = metrics.state_writes.labels("failed")._value.get()
    with structlog.testing.capture_logs() as logs:
        assert not await writer.written()
    assert logs[0]["event"] == "the state could not be kept on disk"
    assert metrics.state_writes.labels("failed")._value.get() == before + 1
    folder.unlink()
    assert await writer.written()
    assert file.load() == b"x"
