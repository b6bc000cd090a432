"""Tokens at a sidecar that serves: who is let in, to what, and for how long."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

from services.sidecar.api.contract import CONTRACT
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ksqldb import Script, ksqldb
from tests.fixtures.token_issuer import AUDIENCE, TokenIssuer
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Json, Kafka, SidecarWorld, started

RECORDS = {"keyFormat": "string", "valueFormat": "string", "records": [{"key": "k", "value": "v"}]}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer().running() as running:
        yield running


@pytest.fixture(scope="module")
def guarded(kafka_c1: KafkaCluster, issuer: TokenIssuer) -> Iterator[SidecarWorld]:
    """Asks for keys whenever it is asked itself, so that tests need not wait."""
    trusted = {"jwks_url": issuer.jwks_url, "issuer": issuer.url, "audience": AUDIENCE}
    with started(
        kafka_c1.bootstrap,
        token_issuers=[trusted],
        token_clock_skew_s=0,
        token_keys_max_age_ms=1,
        token_keys_pause_ms=1,
        stream_heartbeat_ms=50,
        key_format="string",
        value_format="string",
    ) as world:
        yield world


@pytest.fixture
def http(guarded: SidecarWorld) -> httpx.Client:
    return guarded.http


@pytest.fixture
def mine(kafka: Kafka, topic: str) -> str:
    """A topic of the token's own."""
    kafka.create(f"{topic}.mine")
    return f"{topic}.mine"


@pytest.fixture
def theirs(kafka: Kafka, topic: str) -> str:
    """A topic that is not."""
    kafka.create(f"{topic}.theirs")
    return f"{topic}.theirs"


def narrowed(issuer: TokenIssuer, mine: str) -> dict[str, str]:
    """The token of a caller who has this topic, and no other."""
    return issuer.bearer(f"kafka:w:{mine} kafka:r:{mine}")


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("name", [name for name, operation in CONTRACT.operations.items() if operation.scopes])
def test_no_operation_is_served_without_a_token(http: httpx.Client, name: str) -> None:
    operation = CONTRACT.operations[name]
    path = operation.path.replace("{", "").replace("}", "")
    answer = http.request(operation.method, path)
    assert code(answer) == (401, "ERR10002")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/health/liveness", "/health/readiness", "/spec.yaml"])
def test_who_watches_needs_no_token(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 200


def test_a_path_that_is_not_there_is_so_for_everyone(http: httpx.Client) -> None:
    assert code(http.get("/nope")) == (404, "ERR10048")


def test_with_a_token_records_are_written_and_read(
    guarded: SidecarWorld, issuer: TokenIssuer, mine: str, group: str
) -> None:
    guarded.http.headers.update(issuer.bearer())
    try:
        assert guarded.produce(mine, {"key": "k", "value": "v"}).status_code == 200
        instance = guarded.create(group, "c1")
        instance.subscribe(mine)
        assert [record["value"] for record in instance.read_all(1)] == ["v"]
    finally:
        del guarded.http.headers["Authorization"]


@pytest.mark.parametrize("scope", ["kafka:r", "kafka:admin", "", "other"])
def test_a_scope_that_is_lacking(http: httpx.Client, issuer: TokenIssuer, mine: str, scope: str) -> None:
    answer = http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer(scope))
    assert code(answer) == (403, "ERR10005")
    assert "specification scopes [kafka:w] are not matched" in answer.json()["description"]
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'


def test_administration_has_a_scope_of_its_own(http: httpx.Client, issuer: TokenIssuer) -> None:
    assert code(http.get("/adm/server/info", headers=issuer.bearer())) == (403, "ERR10005")
    assert http.get("/adm/server/info", headers=issuer.bearer("kafka:admin")).status_code == 200


def test_an_expired_token(http: httpx.Client, issuer: TokenIssuer, mine: str) -> None:
    answer = http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer(expires_in=-1))
    assert code(answer) == (401, "ERR10001")
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


def test_a_token_for_somebody_else(http: httpx.Client, issuer: TokenIssuer, mine: str) -> None:
    answer = http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer(aud="another"))
    assert code(answer) == (401, "ERR10000")


def test_keys_are_rotated_while_calls_come(http: httpx.Client, issuer: TokenIssuer, mine: str) -> None:
    def produce(headers: dict[str, str]) -> int:
        return http.post(f"/producers/{mine}", json=RECORDS, headers=headers).status_code

    old = issuer.bearer()
    assert produce(old) == 200
    issuer.rotate("beside", keep=True)
    assert (produce(issuer.bearer()), produce(old)) == (200, 200)
    issuer.rotate("alone", "EdDSA")
    assert (produce(issuer.bearer()), produce(old)) == (200, 401)


def test_while_the_issuer_is_away_its_last_keys_count(http: httpx.Client, issuer: TokenIssuer, mine: str) -> None:
    assert http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer()).status_code == 200
    issuer.outage = True
    try:
        assert http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer()).status_code == 200
        issuer.rotate("unseen")
        answer = http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer())
        assert code(answer) == (503, "ERR12940")
        assert answer.headers["Retry-After"]
    finally:
        issuer.outage = False
    assert http.post(f"/producers/{mine}", json=RECORDS, headers=issuer.bearer()).status_code == 200


def test_tokens_get_into_no_log_and_no_error(http: httpx.Client, issuer: TokenIssuer, mine: str) -> None:
    tokens = [issuer.token(), issuer.token("kafka:r"), issuer.token(expires_in=-1), TokenIssuer().token(iss=issuer.url)]
    with structlog.testing.capture_logs() as lines:
        answers = [
            http.post(f"/producers/{mine}", json=RECORDS, headers={"Authorization": f"Bearer {token}"}).text
            for token in tokens
        ]
    told = json.dumps([lines, answers], default=repr)
    assert not [token for token in tokens if any(part in told for part in token.split("."))]


def test_a_narrowed_token_writes_to_its_topics_only(
    http: httpx.Client, issuer: TokenIssuer, kafka: Kafka, mine: str, theirs: str
) -> None:
    headers = narrowed(issuer, mine)
    assert http.post(f"/producers/{mine}", json=RECORDS, headers=headers).status_code == 200
    refused = http.post(f"/producers/{theirs}", json=RECORDS, headers=headers)
    assert code(refused) == (403, "ERR10005")
    assert theirs in refused.json()["description"]
    both = {"topics": [{"topic": topic, **RECORDS} for topic in (mine, theirs)]}
    assert code(http.post("/transactions", json=both, headers=headers)) == (403, "ERR10005")
    kafka.read(theirs, 0)


@pytest.mark.parametrize("side", ["key", "value"])
def test_a_narrowed_token_registers_no_schema_of_others(
    http: httpx.Client, issuer: TokenIssuer, mine: str, theirs: str, side: str
) -> None:
    schema = {f"{side}Format": "avro", f"{side}Schema": '"string"', f"{side}SchemaSubject": f"{theirs}-{side}"}
    asked = {**RECORDS, **schema}
    for path, body in ((f"/producers/{mine}", asked), ("/transactions", {"topics": [{"topic": mine, **asked}]})):
        answer = http.post(path, json=body, headers=narrowed(issuer, mine))
        assert code(answer) == (403, "ERR10005")
        assert theirs in answer.json()["description"]


def test_a_narrowed_token_reads_its_topics_only(
    http: httpx.Client, issuer: TokenIssuer, mine: str, theirs: str, group: str
) -> None:
    headers = narrowed(issuer, mine)
    path = http.post(f"/consumers/{group}", json={"name": "c1"}, headers=headers).json()["base_uri"]

    def post(end: str, body: Json) -> httpx.Response:
        return http.post(f"{path}/{end}", json=body, headers=headers)

    for topics in ([theirs], [mine, theirs]):
        assert code(post("subscriptions", {"topics": topics})) == (403, "ERR10005")
    prefix = mine.removesuffix("mine").replace(".", r"\.")
    for pattern in (".*", f"{prefix}.*", f"{prefix}mine|{prefix}theirs"):
        assert code(post("subscriptions", {"topic_pattern": pattern})) == (403, "ERR10005")
    partition = {"topic": theirs, "partition": 0}
    assert code(post("assignments", {"partitions": [partition]})) == (403, "ERR10005")
    assert code(post("positions", {"offsets": [{**partition, "offset": 0}]})) == (403, "ERR10005")
    assert code(post("positions/first", {"partitions": [partition]})) == (403, "ERR10005")
    assert code(post("offsets", {"offsets": [{**partition, "offset": 0}]})) == (403, "ERR10005")
    committed = http.put(f"{path}/offsets", json={"partitions": [partition]}, headers=headers)
    assert code(committed) == (403, "ERR10005")
    assert post("subscriptions", {"topic_pattern": f"{prefix}mine"}).status_code == 204
    assert post("subscriptions", {"topics": [mine]}).status_code == 204


@pytest.mark.parametrize("base", ["kafka:r", "kafka:w"])
def test_one_scope_of_both_makes_subscribes_seeks_commits_and_deletes(
    http: httpx.Client, issuer: TokenIssuer, mine: str, theirs: str, group: str, base: str
) -> None:
    headers = issuer.bearer(f"{base}:{mine}")
    partition = {"topic": mine, "partition": 0}
    created = http.post(f"/consumers/{group}", json={"name": "c1"}, headers=headers)
    assert created.status_code == 200, created.text
    path = created.json()["base_uri"]
    for method, end, body in (
        ("POST", "/subscriptions", {"topics": [mine]}),
        ("GET", "/subscriptions", None),
        ("DELETE", "/subscriptions", None),
        ("POST", "/assignments", {"partitions": [partition]}),
        ("GET", "/assignments", None),
        ("POST", "/positions", {"offsets": [{**partition, "offset": 0}]}),
        ("POST", "/positions/first", {"partitions": [partition]}),
        ("POST", "/positions/last", {"partitions": [partition]}),
        ("POST", "/offsets", {"offsets": [{**partition, "offset": 0}]}),
        ("PUT", "/offsets", {"partitions": [partition]}),
        ("DELETE", "/subscriptions", None),
    ):
        answer = http.request(method, f"{path}{end}", json=body, headers=headers)
        assert answer.is_success, (method, end, answer.text)
    assert code(http.post(f"{path}/subscriptions", json={"topics": [theirs]}, headers=headers)) == (403, "ERR10005")
    read = http.get(f"{path}/records", headers=headers)
    assert code(read) == ((400, "ERR12205") if base == "kafka:r" else (403, "ERR10005"))  # it reads nothing just now
    assert http.delete(path, headers=headers).status_code == 204


def test_no_answer_tells_whether_there_is_a_topic_beyond_the_scope(
    http: httpx.Client, issuer: TokenIssuer, mine: str, theirs: str, group: str
) -> None:
    headers = narrowed(issuer, mine)
    path = http.post(f"/consumers/{group}", json={"name": "c1"}, headers=headers).json()["base_uri"]

    def answers(topic: str) -> list[tuple[int, str]]:
        offset = {"topic": topic, "partition": 0, "offset": 0}
        partitions = {"partitions": [{"topic": topic, "partition": 0}]}
        calls: list[tuple[str, str, Any, dict[str, str]]] = [
            ("POST", f"/producers/{topic}", RECORDS, {}),
            ("POST", "/transactions", {"topics": [{"topic": topic, **RECORDS}]}, {}),
            ("POST", f"{path}/subscriptions", {"topics": [topic]}, {}),
            ("POST", f"{path}/assignments", partitions, {}),
            ("POST", f"{path}/positions", {"offsets": [offset]}, {}),
            ("POST", f"{path}/positions/first", partitions, {}),
            ("POST", f"{path}/positions/last", partitions, {}),
            ("POST", f"{path}/offsets", {"offsets": [offset]}, {}),
            ("PUT", f"{path}/offsets", partitions, {}),
            ("POST", "/consumers/deadLetter/active", [{"record": offset, "processed": False}], {}),
            ("GET", "/consumers/deadLetter/active", None, {"topic": topic}),
        ]
        found = [http.request(one, at, json=body, params=query, headers=headers) for one, at, body, query in calls]
        return [(answer.status_code, answer.text.replace(topic, "TOPIC")) for answer in found]

    there, not_there = answers(theirs), answers(f"{theirs}-not-there")
    assert {status for status, _ in there} == {403}
    assert there == not_there


def test_what_others_made_an_instance_read_is_not_given_to_a_narrowed_token(
    http: httpx.Client, issuer: TokenIssuer, kafka: Kafka, mine: str, theirs: str, group: str
) -> None:
    kafka.write(theirs, {"value": b"secret"})
    everything = issuer.bearer()
    created = http.post(f"/consumers/{group}", json={"name": "c1", "autoOffsetReset": "earliest"}, headers=everything)
    path = created.json()["base_uri"]
    http.post(f"{path}/subscriptions", json={"topics": [theirs]}, headers=everything)
    headers = narrowed(issuer, mine)
    for method, end in (
        ("GET", "/records"), ("GET", "/subscriptions"), ("GET", "/assignments"), ("DELETE", "/subscriptions"),
        ("POST", "/offsets"), ("DELETE", ""),
    ):  # fmt: skip
        assert code(http.request(method, f"{path}{end}", headers=headers)) == (403, "ERR10005"), (method, end)
    for accept in ("text/event-stream", "application/x-ndjson"):
        answer = http.get(f"{path}/records", headers={**headers, "Accept": accept})
        assert code(answer) == (403, "ERR10005")


LIVES_S = (1, 4, 16)
"""Of tokens: on a busy machine the first may be over before its request is read."""


def test_lines_are_taken_for_as_long_as_the_token_counts(
    http: httpx.Client, issuer: TokenIssuer, kafka: Kafka, mine: str
) -> None:
    def lines() -> Iterator[bytes]:
        yield b'{"value":"in time"}\n'
        wait_until(lambda: time.time() > expires_at, "the token has expired")
        yield b'{"value":"too late"}\n'

    for life in LIVES_S:
        expires_at = int(time.time()) + life
        headers = {**issuer.bearer(exp=expires_at), "Content-Type": "application/x-ndjson"}
        told = http.post(f"/producers/{mine}", content=lines(), headers=headers).text.splitlines()
        if len(told) == 2:
            break
    written, ended = map(json.loads, told)
    assert (written["line"], "offset" in written) == (1, True)
    assert (ended["line"], "expired" in ended["error"]) == (2, True)
    assert [record.value for record in kafka.read(mine, 1)] == [b"in time"]


def test_a_stream_ends_with_its_token(http: httpx.Client, issuer: TokenIssuer, mine: str, group: str) -> None:
    path = http.post(f"/consumers/{group}", json={"name": "c1"}, headers=issuer.bearer()).json()["base_uri"]
    http.post(f"{path}/subscriptions", json={"topics": [mine]}, headers=issuer.bearer())
    for life in LIVES_S:
        headers = {**issuer.bearer(expires_in=life), "Accept": "text/event-stream"}
        request = http.build_request("GET", f"{path}/records", headers=headers)
        with contextlib.closing(http.send(request, stream=True)) as events:
            told = "".join(events.iter_text())
        if events.status_code == 200:
            break
    assert "event: error" in told
    assert "ERR10001" in told


def test_a_token_that_is_narrowed_to_topics_may_not_ask_ksqldb(kafka_c1: KafkaCluster, issuer: TokenIssuer) -> None:
    trusted = {"jwks_url": issuer.jwks_url, "issuer": issuer.url, "audience": AUDIENCE}
    query = {"query": "select * from PAYMENTS;", "queryType": "pull"}
    with ksqldb() as server, started(kafka_c1.bootstrap, token_issuers=[trusted], ksqldb_url=server.url) as world:
        server.scripts[query["query"]] = Script(is_push=False)
        answers = [
            world.http.post("/ksqldb/active", json=query, headers=issuer.bearer(f"kafka:w {scope}"))
            for scope in ("kafka:r:orders.*", "kafka:r")
        ]
    assert [answer.status_code for answer in answers] == [403, 200]
    assert "not narrowed" in answers[0].json()["description"]
