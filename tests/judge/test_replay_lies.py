"""The replayer finds what a faulty endpoint would answer, and nothing between two brokers that answer well."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from judge.protocol.connection import Address
from judge.replay import side
from judge.replay.recording import Recording, read
from judge.replay.replaying import replayed
from judge.replay.specification import Specifications
from judge.replay.verdict import Verdict
from judge.systems.client_jars import client_jars
from tests.judge.endpoints import fresh_clusters
from tests.judge.record import cabled_broker
from tests.judge.replay_liars import AnswerLiar, Lie

RECORDED = Path(__file__).parent / "recordings" / "confluent.rec"
FIRST_TEST = 420
"""Events of the recording: a client writes with each compression, and a group reads all of it."""
NEVER_SETTLES_S = 2.0
"""A lie stays as it is: the replayer need not ask again for as long as it asks a broker that is late."""
NEVER_COMES_S = 10.0
"""Behind a lie the replayer waits for an answer that the liar's broker does not give."""
EACH_TIME = {Lie.NONE, Lie.OFFSET, Lie.RECORD}
"""The others take as long each: `make soak` has them."""
SHOWS_AS = {
    Lie.ERROR: ("OffsetCommit", "Topics[].Partitions[].ErrorCode"),
    Lie.OFFSET: ("Produce", "Responses[].PartitionResponses[].BaseOffset"),
    Lie.PARTITION: ("Metadata", "Topics[].Partitions[]"),
    Lie.RECORD: ("", "Responses[].Partitions[].Records"),
    Lie.ORDER: ("", "the whole answer"),
    Lie.SILENCE: ("ListOffsets", "the whole answer"),
}


@dataclass(frozen=True)
class Pair:
    kafka: str
    liar: AnswerLiar
    behind_liar: str


@pytest.fixture(scope="module")
def pair(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two brokers, one of them behind a liar. What one test leaves there, it leaves on both."""
    liars: list[AnswerLiar] = []

    def make(to: Address, listener: socket.socket) -> AnswerLiar:
        liars.append(AnswerLiar(to, _listener=listener))
        return liars[-1]

    folder = tmp_path_factory.mktemp("pair")
    with cabled_broker(folder, make) as behind_liar, fresh_clusters(1, folder) as [kafka]:
        yield Pair(kafka, liars[0], behind_liar)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("lie", [pytest.param(lie, marks=() if lie in EACH_TIME else pytest.mark.soak) for lie in Lie])
def test_a_lie_is_found_and_the_truth_is_not(lie: Lie, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    if lie is not Lie.NONE:
        monkeypatch.setattr(side, "SETTLE_S", NEVER_SETTLES_S)
        monkeypatch.setattr(side, "ANSWER_S", NEVER_COMES_S)
    pair.liar.lie, pair.liar.lied = lie, False
    whole = read(RECORDED)
    part = Recording(whole.about, whole.events[:FIRST_TEST])
    verdict = Verdict()
    specs = Specifications(client_jars())
    verdict.add("part", *replayed(specs, part, [pair.kafka], [pair.behind_liar]))
    found = {(finding.api, finding.difference.path) for finding in verdict.findings}
    if lie is Lie.NONE:
        assert not found, verdict.text()
        return
    assert pair.liar.lied, "nothing was planted"
    api, path = SHOWS_AS[lie]
    assert any(path == each and api in ("", name) for name, each in found), verdict.text()
