"""Records on pages: read through a real gateway as the viewer, by ACL and role, within bounds, with escapes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from mesh.protection.rule import Others, Rule, What
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import DESCRIBE, READ, Recorded, recorded
from tests.fixtures.consoles import VIEWER, Consoled, text_of
from tests.integration.control.world import create_topic

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202egnp"


@pytest.fixture
async def topic(console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> str:
    """Apples, with two partitions on c1."""
    name = unique_name("apples")
    create_topic(kafka_c1.bootstrap, name, 2)
    return name


@pytest.fixture
async def house(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, tmp_path: Path
) -> AsyncIterator[Recorded]:
    """Apples on c1, pears on c2; vera may read both."""
    create_topic(kafka_c2.bootstrap, f"{topic}-pears", 1)
    homes = {topic: "c1", f"{topic}-pears": "c2"}
    await console.grant("vera", VIEWER)
    await console.grant("otto", VIEWER)
    async with recorded(console, tmp_path, {"c1": kafka_c1, "c2": kafka_c2}, homes) as made:
        made.allow(("vera", READ, topic), ("vera", READ, f"{topic}-pears"), ("otto", DESCRIBE, topic))
        yield made


def values(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"value": f'{{"n":{n}}}', "timestamp": 1_700_000_000_000 + n * 1000, **more} for n in range(count)]


def numbers(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'\{"n":(\d+)\}', page)]


async def test_newest_oldest_offset_and_time_and_their_next_pages(house: Recorded, topic: str) -> None:
    for partition in (0, 1):
        house.write("c1", topic, *values(30, partition=partition))
    async with house.consoled.person("vera") as vera:
        began = time.monotonic()
        page = await vera.sees(f"/records?topic={topic}&most=6")
        print(f"the newest 6 of two partitions after {time.monotonic() - began:.3f} s")
        assert numbers(page) == [29, 29, 28, 28, 27, 27]
        assert "0 0 30 1 0 30" in page, "the offsets of both partitions"
        seen = await all_pages(vera, f"/records?topic={topic}&most=7")
        assert seen == [n for n in range(29, -1, -1) for _ in range(2)]
        seen = await all_pages(vera, f"/records?topic={topic}&start=oldest&most=11")
        assert sorted(seen) == sorted([*range(30), *range(30)])
        page = await vera.sees(f"/records?topic={topic}&start=offset&partition=1&offset=27")
        assert numbers(page) == [27, 28, 29]
        page = await vera.sees(f"/records?topic={topic}&start=time&time=2023-11-14T22:13:46&partition=0")
        assert numbers(page) == list(range(26, 30))
        assert "2023-11-14 22:13:46.000 UTC" in page


async def all_pages(visitor: Any, path: str) -> list[int]:
    """The values of a page and of all that follow."""
    seen: list[int] = []
    while path:
        text = (await visitor.client.get(path)).text
        seen += numbers(text_of(text))
        path = text.partition('<p><a class="button" href="/records?')[2].partition('"')[0].replace("&amp;", "&")
        path = path and f"/records?{path}"
    return seen


async def test_a_topic_of_the_other_cluster_and_an_empty_one(house: Recorded, topic: str) -> None:
    async with house.consoled.person("vera") as vera:
        assert "There is no record here." in await vera.sees(f"/records?topic={topic}-pears")
        house.write("c2", f"{topic}-pears", {"key": "a", "value": "ripe", "headers": [("kind", b"fruit")]})
        page = await vera.sees(f"/records?topic={topic}-pears&start=oldest")
        assert " a kind: fruit ripe" in page


async def test_a_filter_in_cel_and_what_it_cannot_judge(house: Recorded, topic: str) -> None:
    house.write("c1", topic, *values(10, partition=0), {"value": "no JSON", "partition": 0})
    async with house.consoled.person("vera") as vera:
        page = await vera.sees(f"/records?topic={topic}&filter=value.n%20%3E%206")
        assert numbers(page) == [9, 8, 7]
        assert "The filter can't judge 1 record, which the page leaves out." in page
        assert "the value is not JSON" in page
        page = await vera.sees(f"/records?topic={topic}&filter=value.n%20%3E", 409)
        assert "filter: 'value.n >'" in page


async def test_who_may_not_read_gets_the_brokers_word_and_no_record(house: Recorded, topic: str) -> None:
    house.write("c1", topic, {"value": "secret", "partition": 0})
    async with house.consoled.person("otto") as otto:
        for path in (
            f"/records?topic={topic}", f"/records?topic={topic}&start=oldest",
            f"/records/one?topic={topic}&partition=0&offset=0", f"/records/whole?topic={topic}&partition=0&offset=0",
        ):  # fmt: skip
            answer = await otto.client.get(path)
            assert answer.status_code == 403, answer.text
            assert "secret" not in answer.text
            assert "TOPIC_AUTHORIZATION_FAILED" in answer.text
            assert "An ACL must allow you the operation" in answer.text
        assert "TOPIC_AUTHORIZATION_FAILED" in await otto.sees(f"/records?topic={topic}-pears", 403)
        events = await tailed(otto, topic, lambda text: "event: trouble\ndata: topic" in text)
        assert "secret" not in events
    async with house.consoled.visitor() as visitor:
        for path in (f"/records?topic={topic}", f"/records/one?topic={topic}&partition=0&offset=0"):
            page = await visitor.sees(path, 401)
            assert "Records need a log-in: the gateway knows a viewer by the own token." in page
            assert "secret" not in page


async def test_a_viewer_who_is_no_reader_of_a_protected_field_sees_its_mask(house: Recorded, topic: str) -> None:
    house.write("c1", topic, {"value": '{"id":1,"email":"ann@example.org"}', "partition": 0})
    email = Rule("pii", topic, what=What.JSON, fields=("email",), readers=("User:vera",))
    may_read = ("vera", READ, topic), ("otto", READ, topic)
    paths = (
        f"/records?topic={topic}&start=oldest", f"/records/one?topic={topic}&partition=0&offset=0",
        f"/records/whole?topic={topic}&partition=0&offset=0",
        f"/records?topic={topic}&start=oldest&filter=value.email%20%21%3D%20%22%22",
    )  # fmt: skip
    house.allow(*may_read, protect=[email])
    async with house.consoled.person("vera") as vera, house.consoled.person("otto") as otto:
        for path in paths:
            assert "ann@example.org" in (await vera.client.get(path)).text
            answer = await otto.client.get(path)
            assert answer.status_code == 200, answer.text
            assert "***" in answer.text
            assert "ann@example.org" not in answer.text
        page = await otto.sees(f"/records/one?topic={topic}&partition=0&offset=0")
        assert "mesh-masked" in page
        assert "email: you are no reader (rule pii)" in page
        guess = f"/records?topic={topic}&filter=value.email%20%3D%3D%20%22ann%40example.org%22"
        assert "0 records of 1 that were read" in await otto.sees(guess), "a filter is no way to guess a value"
        house.allow(*may_read, protect=[replace(email, others=Others.REFUSAL)])
        assert "TOPIC_AUTHORIZATION_FAILED" in await otto.sees(f"/records?topic={topic}&start=oldest", 403)
        assert "ann@example.org" in await vera.sees(f"/records?topic={topic}&start=oldest")


async def test_a_token_that_the_gateway_does_not_take(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    await console.grant("vera", VIEWER)
    async with recorded(console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}, audience="another") as house:
        async with house.consoled.person("vera") as vera:
            began = time.monotonic()
            page = await vera.sees(f"/records?topic={topic}", 403)
            print(f"refused after {time.monotonic() - began:.2f} s")
            assert "_AUTHENTICATION" in page
            assert "its TOKEN_ISSUERS must have the issuer and an audience of the token" in page
            await vera.sees("/topics")  # the log-in at control goes on
        house.gateway.close()
        async with house.consoled.person("vera") as vera:
            assert "(_TRANSPORT)" in await vera.sees(f"/records?topic={topic}", 503)


async def test_places_that_are_not_there(house: Recorded, topic: str) -> None:
    house.write("c1", topic, *values(3, partition=0))
    house.allow(("vera", READ, topic), ("vera", READ, f"{topic}-none"))
    async with house.consoled.person("vera") as vera:
        page = await vera.sees(f"/records?topic={topic}&start=offset&partition=0&offset=7", 409)
        assert "partition 0 of topic" in page
        assert "has the offsets 0 to 2; 7 is out of range" in page
        page = await vera.sees(f"/records?topic={topic}&start=offset&partition=1&offset=0", 409)
        assert "has no records, and its end is 0" in page
        page = await vera.sees(f"/records?topic={topic}&partition=5", 409)
        assert "has the partitions 0 to 1; 5 is none" in page
        assert "(UNKNOWN_TOPIC_OR_PART)" in await vera.sees(f"/records?topic={topic}-none", 404)
        for wrong in ("start=x", "start=offset&offset=1", "start=time", "offset=x", "at=x", "time=x"):
            await vera.sees(f"/records?topic={topic}&{wrong}", 409)
        await vera.sees("/records/one", 409)


async def test_transactions_that_were_aborted_are_seen_on_demand_alone(
    house: Recorded, topic: str, kafka_c1: KafkaCluster
) -> None:
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for value, ends in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(60)
        ends(60)
    async with house.consoled.person("vera") as vera:
        for start in ("newest", "oldest"):
            page = await vera.sees(f"/records?topic={topic}&start={start}")
            assert "kept" in page
            assert "dropped" not in page
        assert "dropped" in await vera.sees(f"/records?topic={topic}&uncommitted=1")
        assert "dropped" in await vera.sees(f"/records/one?topic={topic}&partition=0&offset=2&uncommitted=1")
        page = await vera.sees(f"/records/one?topic={topic}&partition=0&offset=1", 404)
        assert "has no record: a transaction has ended there" in page


async def test_a_record_of_a_megabyte_is_cut_and_saved_whole(house: Recorded, topic: str) -> None:
    large = b'{"text":"' + b"x" * 900_000 + b'"}'
    noise = bytes(range(256)) * 10
    house.write("c1", topic, {"value": large, "partition": 0}, {"value": noise, "partition": 0})
    async with house.consoled.person("vera") as vera:
        page = await vera.sees(f"/records?topic={topic}")
        assert "... (878.9 KiB)" in page
        place = f"/records/one?topic={topic}&partition=0&offset="
        assert "JSON, 878.9 KiB" in await vera.sees(f"{place}0")
        assert "has no curl line" in await vera.sees(f"{place}0")
        answer = await vera.client.get(f"/records/whole?topic={topic}&partition=0&offset=0")
        assert answer.content == large
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-type"] == "application/octet-stream"
        page = await vera.sees(f"{place}1")
        assert "00 01 02 03" in page
        assert "Who was sent this record" in page
        assert "schema id 16909060" in page, "a byte 0 and four more may be that"
        assert "AAECAw" in await vera.sees(f"{place}1&as=base64")
        assert "curl" in page


async def test_hostile_content_is_text_and_nothing_else(house: Recorded, topic: str) -> None:
    house.write(
        "c1", topic, {"value": HOSTILE, "key": HOSTILE, "headers": [(HOSTILE, HOSTILE.encode())], "partition": 0}
    )
    async with house.consoled.person("vera") as vera:
        for path in (f"/records?topic={topic}", f"/records/one?topic={topic}&partition=0&offset=0"):
            page = (await vera.client.get(path)).text
            assert page.count("&lt;script&gt;alert(1)") >= 4
            assert "<script>alert" not in page
            assert "<img" not in page
            assert "\u202e" not in page, "a character that turns the direction of a text is shown as an escape"
        assert "There is no such thing" not in await vera.sees(f"/records?topic={topic}")


async def test_a_tail_shows_what_comes_and_has_a_bound(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    await console.grant("vera", VIEWER)
    bounds: Any = {"max_tails": 1, "tail_records_per_s": 5}
    async with (
        recorded(console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}, **bounds) as house,
        house.consoled.person("vera") as vera,
    ):
        house.write("c1", topic, {"value": "from before", "partition": 0})
        assert "Records as they come" in await vera.sees(f"/records/tail?topic={topic}")
        async with vera.client.stream("GET", f"/live/records?topic={topic}") as first:
            lines = first.aiter_lines()
            assert await anext(lines) == "event: waiting"
            house.write("c1", topic, {"value": HOSTILE, "partition": 1})
            seen = await until_line(lines, "alert(1)")
            assert "&lt;script&gt;" in seen
            assert "<script>" not in seen
            assert "from before" not in seen
            events = await tailed(vera, topic, lambda text: "event: trouble" in text)
            assert "and no more may (MAX_TAILS)" in events
            house.write("c1", topic, *values(3000, partition=0))
            await until_line(lines, "offsets were passed over")
            await vera.sends("/topics", "/logout")
            async for _ in lines:  # it ends with the log-out
                pass


async def until_line(lines: AsyncIterator[str], text: str) -> str:
    """All lines as far as the one that has the text."""
    seen = ""
    async with asyncio.timeout(60):
        while text not in seen:
            seen += await anext(lines)
    return seen


async def tailed(visitor: Any, topic: str, is_enough: Callable[[str], bool]) -> str:
    text = ""
    async with asyncio.timeout(60), visitor.client.stream("GET", f"/live/records?topic={topic}") as stream:
        async for part in stream.aiter_text():
            text += part
            if is_enough(text):
                break
    return text


async def test_without_a_gateway_the_page_says_so(console: Consoled, topic: str) -> None:
    async with console.visitor() as visitor:
        assert "no address of a gateway (GATEWAY_ADDRESS)" in await visitor.sees(f"/records?topic={topic}")


async def test_a_gateway_that_asks_for_nothing_serves_those_whom_control_lets_look(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    await console.grant("vera", VIEWER, topic_prefixes=["shop."])
    async with recorded(console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}, asks_for_tokens=False) as house:
        house.write("c1", topic, {"value": "an apple", "partition": 0})
        async with house.consoled.visitor() as visitor:
            assert "an apple" in await visitor.sees(f"/records?topic={topic}")
        async with house.consoled.person("vera") as vera:
            for path in (f"/records?topic={topic}", f"/records/one?topic={topic}&partition=0&offset=0"):
                page = await vera.sees(path, 403)
                assert "oidc:vera has viewer for topics shop.*" in page
                assert "an apple" not in page
            events = await tailed(vera, topic, lambda text: "event: trouble" in text)
            assert "oidc:vera has viewer for topics shop.*" in events
            assert "can't know you" in await vera.sees(f"/records/new?topic={topic}")


async def test_others_than_those_on_this_machine_read_no_record_without_a_log_in(
    console: Consoled, topic: str, kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    settings: Any = {"asks_for_tokens": False, "read_without_login": "always"}
    async with recorded(console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}, **settings) as house:
        house.write("c1", topic, {"value": "an apple", "partition": 0})
        async with house.consoled.visitor() as visitor:
            page = await visitor.sees(f"/records?topic={topic}", 401)
            assert "others than those on this machine reach this console" in page
            assert "an apple" not in page
