"""Every API in every version: to the cluster that is meant and back, and nothing is lost on the way.

A request with all fields set goes through a whole gateway to a scripted broker, which answers with all fields set.
What each side gets is what the other one sent, but for what `ways` names.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.codec import decode, encode
from services.gateway.wire.frames import RequestHeader, encode_request, parse_response_header
from services.gateway.wire.messages import FetchRequest, ShareFetchRequest
from services.gateway.wire.schema import Kind, Struct, fields_of, message_of
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.roundtrip.differences import Difference, differences
from tests.unit.gateway.roundtrip.preparations import PREPARATIONS
from tests.unit.gateway.roundtrip.samples import Mood, Side, sample
from tests.unit.gateway.roundtrip.stage import Stage, knows_nothing, rich_metadata, scripts, stage
from tests.unit.gateway.roundtrip.ways import ANYTHING, WAYS, Change, Way

CORRELATION_ID = 4711


def served_versions(api_key: int) -> range:
    row = HANDLERS[api_key]
    return range(row.older.versions.low if row.older else row.versions.low, row.versions.high + 1)


def class_of(api_key: int, kind: Kind) -> type[Struct]:
    spec = message_of(api_key, kind)
    assert spec is not None
    return spec.cls


@pytest.mark.parametrize("api_key", sorted(HANDLERS), ids=api_name)
async def test_nothing_is_lost_on_the_way(api_key: int, tmp_path: Path) -> None:
    """A new API or version is tested as soon as it stands in the table, and has to pass untouched."""
    way = WAYS.get(api_key, Way())
    faults: list[str] = []
    happened: set[str] = set()
    async with stage(tmp_path, alone=way.alone) as there:
        for version in served_versions(api_key):
            for mood in (Mood.WILLING, Mood.MIXED):
                trip = RoundTrip(api_key, version, mood, way)
                try:
                    await trip.run(there)
                except (OSError, EOFError, AssertionError) as error:
                    faults.append(f"v{version}: {error!r}")
                happened |= trip.happened
                faults += [f"v{version}, {mood.value}: {fault}" for fault in trip.faults]
    faults += [f"ways say that {each} is changed: it never is" for each in sorted(way.paths() - happened)]
    assert not faults, "\n" + "\n".join(dict.fromkeys(faults))


class RoundTrip:
    """One request and its answer."""

    def __init__(self, api_key: int, version: int, mood: Mood, way: Way) -> None:
        self.api_key, self.version, self.mood, self.way = api_key, version, mood, way
        self.speaking = mood
        """Of the brokers, now."""
        self.asked_by = way.instead or api_key
        """The API that brokers see."""
        self.answer: Struct | None = None
        self.faults: list[str] = []
        self.happened: set[str] = set()
        """The changes that were seen."""

    async def run(self, there: Stage, *, waits: bool = True) -> None:
        """`waits`: for records, if that is what is asked for."""
        there.c1.scripts = scripts(there.c1, self._answers)
        there.c2.scripts = scripts(there.c2, self._answers if self.way.everywhere else knows_nothing)
        if self.asked_by == ApiKey.METADATA:
            there.c1.scripts[ApiKey.METADATA] = rich_metadata(there.c1, self.mood)
        async with there.client() as client:
            request = sample(class_of(self.api_key, Kind.REQUEST), self.version, Side.CLIENT)
            if isinstance(request, FetchRequest | ShareFetchRequest) and not waits:
                request.max_wait_ms = 1
            prepare = PREPARATIONS.get(self.api_key)
            if prepare is not None:
                self.speaking = Mood.WILLING
                request = await prepare(client, request, self.version)
                self.speaking = self.mood
            there.c1.received.clear()
            there.c1.bodies.clear()
            client.send_bytes(encode_request(request, self.version, CORRELATION_ID, "raw"))
            self.answer, body = await self._answer(client)
        if self.mood is Mood.REFUSING:
            return
        arrived = [
            (header, message, data)
            for (header, message), data in zip(there.c1.received, there.c1.bodies, strict=True)
            if header.api_key == self.asked_by
        ]
        if self.way.own:
            self._check_own(self.answer, arrived)
        elif self.version <= self.way.refused_until:
            if arrived or not any(code for _, code in errors_in(self.answer, "")):
                self.faults.append("is not refused")
        else:
            self._check_question(arrived, encode(request, self.version))
            self._check_answer(self.answer, body, arrived[-1][0].api_version if arrived else self.version)

    def swallowed(self) -> list[str]:
        """Errors of a broker that refuses, and that the client is not told of."""
        assert self.answer is not None
        errors = [code for _, code in errors_in(self.answer, "")]
        told = any(errors) or not errors or self.way.own or self.way.refusal_is_logged
        return [] if told else [f"v{self.version}: the broker's error is lost"]

    def _answers(self, header: RequestHeader, asked: Struct) -> Struct:
        answer = sample(class_of(header.api_key, Kind.RESPONSE), header.api_version, Side.BROKER, self.speaking)
        return self.way.consistent(asked, answer)

    async def _answer(self, client: RawClient) -> tuple[Struct, bytes]:
        frame = await client.frame()
        header = parse_response_header(frame, 0, len(frame), self.api_key, self.version)
        assert header.correlation_id == CORRELATION_ID
        cls = class_of(self.api_key, Kind.RESPONSE)
        return decode(cls, self.version, frame, header.body_offset), frame[header.body_offset :]

    def _check_own(self, answer: Struct, arrived: Sequence[Any]) -> None:
        if arrived:
            self.faults.append("a broker was asked")
        self.faults += [f"{path} is {code}" for path, code in errors_in(answer, "") if code]

    def _check_question(self, arrived: Sequence[tuple[RequestHeader, Struct, bytes]], body: bytes) -> None:
        if not arrived:
            self.faults.append("no broker was asked")
            return
        if self.way.instead is not None:
            return
        header = arrived[-1][0]
        expected = sample(type(arrived[-1][1]), header.api_version, Side.BROKER)
        whole = arrived[-1][1] if self.way.tried_first else joined([message for _, message, _ in arrived])
        found = list(differences(expected, whole, header.api_version, self.version))
        self._judge("question", found, self.way.changes_of_question())
        untouched = not self.way.question and not self.way.question_anew and header.api_version == self.version
        if untouched and len(arrived) == 1 and arrived[0][2] != body and body == encode(expected, self.version):
            self.faults.append("the question's bytes are not those that the client sent")

    def _check_answer(self, answer: Struct, body: bytes, upstream_version: int) -> None:
        expected = sample(type(answer), self.version, Side.CLIENT, self.mood)
        found = list(differences(expected, answer, self.version, upstream_version))
        self._judge("answer", found, self.way.changes_of_answer())
        if not found and upstream_version == self.version and body != encode(expected, self.version):
            self.faults.append("the answer's bytes are not those that the broker sent")

    def _judge(self, side: str, found: Sequence[Difference], changes: dict[str, Change]) -> None:
        for each in found:
            change = changes.get(each.path)
            if change is None or change.becomes not in (ANYTHING, each.found):
                self.faults.append(f"{side}.{each}")
            else:
                self.happened.add(f"{side}.{each.path}")


def joined(messages: Sequence[Struct]) -> Struct:
    """One request made of those that it was split into: the lists on top one after the other."""
    whole = copy(messages[0])
    for name, spec, _ in fields_of(type(whole)):
        if spec.repeated:
            setattr(whole, name, [item for message in messages for item in getattr(message, name)])
    return whole


def errors_in(message: Struct, path: str) -> Iterator[tuple[str, int]]:
    for name, spec, _ in fields_of(type(message)):
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield f"{path}{name}", value
        elif spec.struct is not None and value is not None:
            for item in value if spec.repeated else [value]:
                yield from errors_in(item, f"{path}{name}.")


@pytest.mark.parametrize("silent", [("c1", "c2"), ("c2",)], ids=["all", "one"])
@pytest.mark.parametrize("api_key", sorted(HANDLERS), ids=api_name)
async def test_silent_clusters_are_told_of_in_every_version(
    api_key: int, silent: tuple[str, ...], tmp_path: Path
) -> None:
    """What the gateway says on its own account fits into old versions, too: who gets an answer can try again."""
    way = WAYS.get(api_key, Way())
    faults: list[str] = []
    async with stage(tmp_path) as there:
        for cluster in silent:
            await getattr(there, cluster).stop()
        for version in served_versions(api_key):
            trip = RoundTrip(api_key, version, Mood.REFUSING, way)
            try:
                await trip.run(there, waits=False)
            except EOFError:
                faults.append(f"v{version}: the connection was closed instead")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("api_key", sorted(HANDLERS), ids=api_name)
async def test_a_refusal_reaches_the_client_in_every_version(api_key: int, tmp_path: Path) -> None:
    way = WAYS.get(api_key, Way())
    faults: list[str] = []
    async with stage(tmp_path, alone=way.alone) as there:
        for version in served_versions(api_key):
            trip = RoundTrip(api_key, version, Mood.REFUSING, way)
            try:
                await trip.run(there)
            except EOFError:
                faults.append(f"v{version}: the connection was closed instead")
            else:
                faults += trip.swallowed()
    assert not faults, "\n".join(faults)
