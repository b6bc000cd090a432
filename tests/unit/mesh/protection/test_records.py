"""Records that are protected and revealed: what comes back to readers, to others, and after somebody has meddled."""

from __future__ import annotations

import json
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.protection.envelope import HEADER, MASKED_HEADER, Envelope, NotDecryptedError, Opening, Sealing
from mesh.protection.fields import Content, MissingError
from mesh.protection.json_fields import NotJsonError, spans
from mesh.protection.keys import DataKey, NoKey, Wrapped
from mesh.protection.records import (
    Protecting,
    RefusedError,
    Revealing,
    Secrets,
    WithheldError,
)
from mesh.protection.rule import Others, Rule, What, overlap, within_another
from mesh.record_transforms import json_path

READER, OTHER = ("User:crm",), ("User:clerk", "Group:sales")
KEY = DataKey(Wrapped("pii", b"wrapped"), secrets.token_bytes(32))
CARD_KEY = DataKey(Wrapped("cards", b"wrapped too"), secrets.token_bytes(32))
KEYS = {"pii": KEY, "cards": CARD_KEY}
SECRETS: Secrets = {each.name: each.secret for each in KEYS.values()}

EMAIL = Rule("email", "orders", what=What.JSON, fields=("customer.email", "old[*]"), key_id="pii", readers=READER)
CARD = Rule("card", "orders", what=What.JSON, fields=("card",), key_id="cards", readers=("Group:sales",))
VALUE = Rule("value", "orders", key_id="pii", readers=READER)

texts = st.text(max_size=8)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["email", "card", "customer", "old", "x"]), inner)
    ),
    max_leaves=12,
)
whole_documents = st.fixed_dictionaries(
    {},
    optional={"customer": st.fixed_dictionaries({"email": documents}), "card": documents, "old": st.lists(documents)},
)
headers = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.none() | st.binary(max_size=4)), max_size=2)


def protected(value: bytes | None, *rules: Rule, of: list[tuple[bytes, bytes | None]] | None = None) -> Content:
    return Protecting("orders", rules, KEYS).protected(Content(value, of or []))


def revealed(
    content: Content, who: tuple[str, ...], *rules: Rule, known: Secrets = SECRETS, topic: str = "orders"
) -> Content:
    return Revealing(topic, rules, who, known).revealed(content)


def masked_header(content: Content) -> str:
    return (dict(content.headers)[MASKED_HEADER] or b"").decode()


@given(
    document=whole_documents,
    own=headers,
    spaces=st.sampled_from([None, 1]),
    prefix=st.sampled_from([b"", b"\0\0\0\0\x07"]),
)
def test_a_reader_of_all_rules_gets_every_byte_that_was_written(
    document: object, own: list[tuple[bytes, bytes | None]], spaces: int | None, prefix: bytes
) -> None:
    value = prefix + json.dumps(document, indent=spaces, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        value.decode()
    except UnicodeDecodeError:
        return
    sealed = protected(value, EMAIL, CARD, of=own)
    back = revealed(sealed, (*READER, *OTHER), EMAIL, CARD)
    assert (back.value, list(back.headers)) == (value, own)


@given(value=st.binary(max_size=50))
def test_whole_values_come_back_whatever_they_are(value: bytes) -> None:
    sealed = protected(value, VALUE)
    assert sealed.value is not None
    assert len(sealed.value) == len(value) + 20, "count and tag"
    assert revealed(sealed, READER, VALUE) == Content(value, [])


@given(email=st.text(alphabet="qwz", min_size=5, max_size=9), card=st.text(alphabet="vyk", min_size=5, max_size=9))
def test_what_a_rule_protects_is_neither_in_the_record_nor_with_those_who_are_no_readers(email: str, card: str) -> None:
    sealed = protected(json.dumps({"customer": {"email": email}, "card": card}).encode(), EMAIL, CARD)
    assert sealed.value is not None
    assert email.encode() not in sealed.value
    assert card.encode() not in sealed.value
    got = revealed(sealed, OTHER, EMAIL, CARD)
    assert json.loads(got.value or b"") == {"customer": {"email": "***"}, "card": card}, "a reader of one rule alone"
    assert masked_header(got) == "customer.email: you are no reader (rule email)"


@given(at=st.integers(0, 10_000), flip=st.integers(1, 255), whole=st.booleans())
def test_a_byte_that_was_changed_never_gives_another_value(at: int, flip: int, whole: bool) -> None:
    clear = b"4111 1111" if whole else b'{"customer":{"email":"ann"}}'
    rule = VALUE if whole else EMAIL
    value, found = protected(clear, rule)
    assert value is not None
    changed = bytearray(value)
    changed[at % len(value)] ^= flip
    got = revealed(Content(bytes(changed), found), READER, rule)
    if whole:
        assert got.value == b"***"
    else:
        assert b"ann" not in (got.value or b"")


def test_a_ciphertext_in_another_place_is_not_decrypted() -> None:
    both = Rule("both", "orders", what=What.JSON, fields=("a", "b"), key_id="pii", readers=READER)
    sealed = protected(b'{"a":"secret of a","b":1}', both)
    a = json.loads(sealed.value or b"")["a"]
    pasted = json.dumps({"a": 1, "b": a}).encode()
    got = revealed(Content(pasted, sealed.headers), READER, both)
    assert json.loads(got.value or b"") == {"a": 1, "b": "***"}
    assert "another topic or field" in masked_header(got)
    got = revealed(sealed, READER, both, topic="elsewhere")
    assert json.loads(got.value or b"") == {"a": "***", "b": "***"}


def test_nonces_count_and_each_batch_has_a_key_of_its_own() -> None:
    first, second = (Sealing(KEY, "orders", is_whole=True) for _ in range(2))
    sealed = [first.sealed(b"x", "value") for _ in range(3)] + [second.sealed(b"x", "value")]
    assert [each[:4] for each in sealed] == [b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\0"]
    assert len({each[4:] for each in sealed}) == 4
    assert first.envelope.salt != second.envelope.salt
    with pytest.raises(NotDecryptedError):
        Opening(second.envelope, KEY.secret).opened(sealed[0], "value", ("orders",))


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_an_envelope_that_is_cut_short_is_no_envelope(cut: int) -> None:
    whole = Envelope(Wrapped("pii", b"w" * 20), b"s" * 32, True).encoded()
    assert Envelope.read(whole).name == Wrapped("pii", b"w" * 20)
    with pytest.raises(NotDecryptedError):
        Envelope.read(whole[:cut])
    content = Content(b"sealed", [(HEADER, whole[:cut])])
    assert revealed(content, READER, VALUE).value == b"***", "never taken for a value that was stored in the clear"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"no json", "it is no JSON: no value at character 1"),
        (b'{"a": 1', "cut short"),
        (b"\xff\xfe", "no UTF-8 at byte 1"),
        (b"[" * 100_000, "too deep"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": 1} x', "more text begins at character 9"),
    ],
)
def test_what_is_no_json_is_refused_and_masked_as_a_whole(value: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        protected(value, EMAIL)
    got = revealed(Content(value, []), OTHER, EMAIL)
    assert got.value == b"***"
    assert reason in masked_header(got)
    assert revealed(Content(value, []), READER, EMAIL).value == value


def test_a_field_is_found_under_every_spelling_and_each_time_it_comes() -> None:
    got = protected(rb'{"c\u0061rd":1,"card":2,"other":{"card":3}}', CARD)
    text = (got.value or b"").decode()
    assert text.count("mesh:1:cards:") == 2
    assert '"other":{"card":3}' in text
    with pytest.raises(RefusedError, match="no field card"):
        protected(b"{}", Rule("r", "orders", what=What.JSON, fields=("card",), key_id="cards", requires_fields=True))


def test_keys_that_are_missing_away_or_gone() -> None:
    sealed = protected(b'{"card":1}', CARD)
    assert Revealing("orders", [CARD], OTHER, {}).needed(sealed) == {CARD_KEY.name}
    assert Revealing("orders", [CARD], READER, {}).needed(sealed) == frozenset(), "masks need no key"
    with pytest.raises(MissingError):
        revealed(sealed, OTHER, CARD, known={})
    with pytest.raises(WithheldError, match="no answer") as away:
        revealed(sealed, OTHER, CARD, known={CARD_KEY.name: NoKey("no answer", is_gone=False)})
    assert away.value.for_now
    gone: Secrets = {CARD_KEY.name: NoKey("key 'cards' is gone", is_gone=True)}
    assert revealed(sealed, OTHER, CARD, known=gone).value == b'{"card":"***"}'
    refusal = Rule("card", "orders", what=What.JSON, fields=("card",), readers=CARD.readers, others=Others.REFUSAL)
    with pytest.raises(WithheldError) as refused:
        revealed(sealed, OTHER, refusal, known=gone)
    assert not refused.value.for_now
    ciphertext = Rule(
        "card", "orders", what=What.JSON, fields=("card",), readers=CARD.readers, others=Others.CIPHERTEXT
    )
    assert revealed(sealed, OTHER, ciphertext, known=gone) == sealed
    assert revealed(sealed, READER, ciphertext) == sealed
    assert revealed(Content(b'{"card":1}', []), READER, ciphertext).value == b'{"card":"***"}', "clear is no ciphertext"


def test_tombstones_stay_tombstones_and_own_headers_are_not_written() -> None:
    assert protected(None, VALUE) == Content(None, [])
    assert revealed(Content(None, []), OTHER, VALUE) == Content(None, [])
    for name in (HEADER, MASKED_HEADER):
        with pytest.raises(RefusedError, match="not written back"):
            protected(b"{}", EMAIL, of=[(name, b"")])


def test_rules_that_would_protect_the_same_of_one_topic() -> None:
    prefix = Rule("p", "ord", is_prefix=True, what=What.JSON, fields=("customer",))
    assert overlap(EMAIL, prefix) == "field customer.email"
    assert overlap(prefix, EMAIL) == "field customer"
    assert overlap(EMAIL, CARD) == ""
    assert overlap(VALUE, CARD) == "the whole value"
    assert overlap(VALUE, Rule("v", "pears")) == ""
    assert overlap(CARD, Rule("a", "", is_prefix=True, what=What.AVRO, fields=("x",))).startswith(
        "values that are json"
    )
    assert within_another((json_path("a.b"), json_path("a")))
    assert not within_another((json_path("a.b"), json_path("a[*]")))


@given(st.text(alphabet='{}[]":,0a \\ue', max_size=30))
def test_the_walk_takes_what_the_parser_takes(text: str) -> None:
    paths = (json_path("a"), json_path("0[*].a"), json_path("[*]"))
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        with pytest.raises(NotJsonError):
            spans(text, paths)
    else:
        for start, end, _ in spans(text, paths):
            json.loads(text[start:end])
