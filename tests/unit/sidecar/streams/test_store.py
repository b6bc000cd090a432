"""A store's file: what it keeps, how far it is, and what becomes of one that cannot be believed."""

import sqlite3
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sidecar.streams import TopologyError, Tumbling
from services.sidecar.streams.records import StoreSpec
from services.sidecar.streams.state import EntriesInMemory, EntryKey, Overlay
from services.sidecar.streams.store import TOMBSTONES_SECONDS, Store, find, windows_of

SPEC = StoreSpec("counts")
A, B = EntryKey(0, b'"a"'), EntryKey(0, b'"b"')
MIB = 1024 * 1024
PLACES = st.builds(EntryKey, st.integers(0, 3), st.sampled_from([b'"a"', b'"b"']))


def opened(folder: Path, spec: StoreSpec = SPEC, max_bytes: int = 10 * MIB) -> Store:
    return Store(folder / "counts-0.sqlite", spec, max_bytes=max_bytes)


def test_entries_and_checkpoint_outlive_it_together(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.checkpoint is None
    store.apply({A: b"1", B: b"2"}, checkpoint=7)
    store.apply({A: None}, checkpoint=9)
    store.close()
    again = opened(tmp_path)
    assert (again.get(A), again.get(B), again.checkpoint) == (None, b"2", 9)


def test_a_change_that_the_disk_refuses_leaves_all_as_it_was(tmp_path: Path) -> None:
    store = opened(tmp_path, max_bytes=64 * 1024)
    store.apply({A: b"1"}, checkpoint=1)
    with pytest.raises(sqlite3.Error, match="full"):
        store.apply({A: b"2", B: b"x" * MIB}, checkpoint=2)
    assert (store.get(A), store.get(B), store.checkpoint) == (b"1", None, 1)


def test_others_read_what_is_committed_while_it_is_used(tmp_path: Path) -> None:
    store = opened(tmp_path, StoreSpec("counts", Tumbling(10)))
    store.apply({EntryKey(start, b'"a"'): b"%d" % start for start in (0, 10, 20)}, checkpoint=3)
    assert find(store.path, EntryKey(10, b'"a"')) == b"10"
    assert windows_of(store.path, b'"a"', 5, 20, limit=9) == [(10, b"10"), (20, b"20")]
    assert windows_of(store.path, b'"a"', 0, 20, limit=1) == [(0, b"0")]
    assert find(tmp_path / "nothing.sqlite", A) is None


def test_a_file_that_is_no_store_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "counts-0.sqlite").write_bytes(b"this is no database " * 100)
    store = opened(tmp_path)
    assert (store.get(A), store.checkpoint) == (None, None)


def test_a_store_of_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(TopologyError, match="has one value for each key, and the topology wants windows of 10 ms"):
        opened(tmp_path, StoreSpec("counts", Tumbling(10)))


def test_one_that_was_away_for_longer_than_removals_are_told_is_stale(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.apply({A: b"1"}, checkpoint=1)
    assert not store.is_stale
    with mock.patch("time.time", return_value=time.time() + TOMBSTONES_SECONDS + 1):
        assert store.is_stale


@given(st.lists(st.dictionaries(PLACES, st.none() | st.binary(max_size=2))), st.integers(-1, 3))
def test_it_keeps_what_memory_would(rounds: list[dict[EntryKey, bytes | None]], window: int) -> None:
    store = Store(Path(":memory:"), SPEC, max_bytes=MIB)
    memory = EntriesInMemory()
    for offset, changes in enumerate(rounds):
        store.apply(changes, checkpoint=offset)
        memory.apply(changes)
    assert list(store.up_to(window)) == list(memory.up_to(window))
    store.close()


def test_an_entry_that_no_changelog_takes_is_refused() -> None:
    overlay = Overlay(EntriesInMemory(), max_value_bytes=10)
    with pytest.raises(ValueError, match="an entry of 13 bytes does not fit"):
        overlay.put(A, b"0123456789")
    assert overlay.get(A) is None
