"""A record written by a form: as the viewer, once, or with the reason why not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import READ, WRITE, Recorded, recorded
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled
from tests.integration.control.world import create_topic


@pytest.fixture
async def topic(kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> str:
    name = unique_name("apples")
    create_topic(kafka_c1.bootstrap, name, 2)
    return name


@pytest.fixture
async def house(console: Consoled, topic: str, kafka_c1: KafkaCluster, tmp_path: Path) -> AsyncIterator[Recorded]:
    """Ada may read and write apples; vera, an operator of the mesh, may read them."""
    await console.grant("ada", VIEWER)
    await console.grant("vera", OPERATOR)
    async with recorded(console, tmp_path, {"c1": kafka_c1}, {topic: "c1"}) as made:
        made.allow(("ada", READ, topic), ("ada", WRITE, topic), ("vera", READ, topic))
        yield made


async def test_a_form_writes_one_record_however_often_it_is_sent(house: Recorded, topic: str) -> None:
    async with house.consoled.person("ada") as ada:
        page = f"/records/new?topic={topic}"
        form = await ada.form(page, "/records/send")
        said = {
            **form,
            "topic": topic,
            "partition": "1",
            "record_key": "a",
            "value": "ripe\r\nred",
            "headers": "kind: fruit",
        }
        first = await ada.client.post("/records/send", data=said)
        again = await ada.client.post("/records/send", data=said)
        assert first.status_code == again.status_code == 303, first.text
        assert first.headers["location"] == again.headers["location"]
        assert first.headers["location"] == f"/records/one?topic={topic}&partition=1&offset=0"
        shown = await ada.sees(first.headers["location"])
        assert "ripe red" in shown
        assert "kind fruit" in shown
        assert f"/producers/{topic}" in shown
        assert "1 record of 1" in await ada.sees(f"/records?topic={topic}")


async def test_base64_null_and_fields_that_are_wrong(house: Recorded, topic: str) -> None:
    async with house.consoled.person("ada") as ada:

        async def sends(**fields: str) -> Any:
            form = await ada.form(f"/records/new?topic={topic}", "/records/send")
            return await ada.client.post("/records/send", data={**form, "topic": topic, **fields})

        assert (await sends(value="AAEC/w==", form="base64")).status_code == 303
        assert (await sends(record_key="a", null="1", value="x")).status_code == 303
        page = await ada.sees(f"/records?topic={topic}&start=oldest")
        assert "00 01 02 ff" in page
        assert "(null)" in page
        for fields, text in (
            ({"value": "?", "form": "base64"}, "value: this is no base64"),
            ({"headers": "none"}, "is no header; expected name: value"),
            ({"partition": "9"}, "9 is none"),
            ({"partition": "x"}, "is no whole number"),
        ):
            answer = await sends(**fields)
            assert answer.status_code == 409
            assert text in answer.text
        assert "2 records of 2" in await ada.sees(f"/records?topic={topic}")


async def test_who_may_not_write_writes_nothing(house: Recorded, topic: str, kafka_c1: KafkaCluster) -> None:
    async with house.consoled.person("vera") as vera:
        form = await vera.form(f"/records/new?topic={topic}", "/records/send")
        answer = await vera.client.post("/records/send", data={**form, "topic": topic, "value": "mine"})
        assert answer.status_code == 403
        assert "TOPIC_AUTHORIZATION_FAILED" in answer.text
        assert "There is no record here." in await vera.sees(f"/records?topic={topic}")
    async with house.consoled.visitor() as visitor:
        assert "Records need a log-in" in await visitor.sees(f"/records/new?topic={topic}", 401)
        answer = await visitor.client.post("/records/send", data={"topic": topic, "value": "mine"})
        assert answer.status_code == 403, "a form without the key of a page"


async def test_a_topic_that_is_not_there_is_not_made(house: Recorded, topic: str) -> None:
    house.allow(("ada", READ, f"{topic}-none"), ("ada", WRITE, f"{topic}-none"))
    async with house.consoled.person("ada") as ada:
        form = await ada.form("/records/new", "/records/send")
        answer = await ada.client.post("/records/send", data={**form, "topic": f"{topic}-none", "value": "x"})
        assert answer.status_code == 404
        assert "UNKNOWN_TOPIC_OR_PART" in answer.text
