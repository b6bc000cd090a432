"""What our sentences begin with are Kafka's own words: in the jar of its clients, as its `Errors` has them."""

import zipfile

import pytest

from services.gateway.wire.error_words import KAFKAS_WORDS, worded
from services.gateway.wire.errors import ErrorCode
from tests.unit.gateway.wire.test_specifications import NEWEST, jar_of

OTHERS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.INVALID_REQUEST: "SaslServerAuthenticator",
}
"""Words that Kafka has elsewhere."""


def test_the_words_are_kafkas() -> None:
    jar = jar_of(NEWEST)
    if jar is None:
        pytest.skip(f"no kafka-clients-{NEWEST}.jar in Maven's repository or the mesh's cache")
    with zipfile.ZipFile(jar) as archive:
        texts = {
            name.rpartition("/")[2].removesuffix(".class"): archive.read(name)
            for name in archive.namelist()
            if name.endswith(("/protocol/Errors.class", *(f"/{each}.class" for each in OTHERS.values())))
        }
    strange = [
        words
        for code, words in KAFKAS_WORDS.items()
        if words.encode() not in texts[OTHERS.get(ErrorCode(code), "Errors")]
    ]
    assert not strange


def test_our_sentence_comes_behind_them() -> None:
    assert worded(ErrorCode.INVALID_TOPIC_EXCEPTION, "no rule").startswith("Invalid topic: no rule")


def test_a_code_without_words_has_its_name() -> None:
    assert worded(ErrorCode.KAFKA_STORAGE_ERROR, "full") == "KAFKA_STORAGE_ERROR: full"
