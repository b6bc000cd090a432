"""What a round sees of a store, changed or not."""

from hypothesis import given
from hypothesis import strategies as st

from services.sidecar.streams.state import EntriesInMemory, EntryKey, Overlay, key_text

PLACES = st.builds(EntryKey, st.integers(0, 3), st.sampled_from([b'"a"', b'"b"']))
CHANGES = st.lists(st.tuples(PLACES, st.none() | st.binary(max_size=2)))


@given(CHANGES, CHANGES, CHANGES, st.integers(-1, 3))
def test_a_round_sees_its_changes_and_what_is_undone_never_was(
    before: list[tuple[EntryKey, bytes | None]],
    kept: list[tuple[EntryKey, bytes | None]],
    undone: list[tuple[EntryKey, bytes | None]],
    window: int,
) -> None:
    entries = EntriesInMemory()
    entries.apply(dict(before))
    store = Overlay(entries)
    for place, value in kept:
        store.put(place, value)
    store.keep()
    for place, value in undone:
        store.put(place, value)
    store.undo()
    expected = EntriesInMemory()
    expected.apply(dict(before))
    expected.apply(dict(kept))
    assert list(store.up_to(window)) == list(expected.up_to(window))
    entries.apply(store.changes())
    assert entries == expected


@given(st.dictionaries(st.text(), st.integers()) | st.text() | st.integers() | st.lists(st.integers()))
def test_equal_keys_are_one_text(key: object) -> None:
    other = dict(reversed(key.items())) if isinstance(key, dict) else key
    assert key_text(key) == key_text(other)
    place = EntryKey(5, key_text(key))
    assert EntryKey.from_kafka(place.to_kafka()) == place
