"""How each answer of the contract comes about: provoked here, or shown by a test elsewhere.

`PROVOKED` and `SHOWN` have a row for each status and code; a row of `ANY` counts for all operations that have it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest import mock

import httpx

from services.sidecar.admin import topics
from services.sidecar.api.contract import CONTRACT
from services.sidecar.consuming import group_consumer, seeking
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import TOO_LONG_MS, Instance, Json, SidecarWorld

ANY = "*"
MAX_BODY = 4_000
A_MOMENT = 0.1
LATENCY = "com.networknt.chaos.LatencyAssaultHandler"
_numbers = count()

Answer = tuple[str, int, str | None]
"""Operation, status, and code of the error if it is one."""


@dataclass(frozen=True)
class Sidecars:
    """`wide` has Kafka, and a registry and a backend that are away; the others have nobody. `closed` has admin calls
    switched off, and room for one instance; `idle` produces and consumes nothing.
    """

    wide: SidecarWorld
    lonely: SidecarWorld
    closed: SidecarWorld
    idle: SidecarWorld
    topic: str
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names.update(topic=self.topic, service_id="any", assault=LATENCY, asset="swagger-ui.css", id="none")
        self.names.update(stream="nothing", store="nothing", key="k")
        _, names = self.instance(self.wide)
        self.names.update(names)

    @property
    def partition(self) -> Json:
        return {"topic": self.topic, "partition": 0}

    def instance(
        self, world: SidecarWorld, *, state: str = "assigned", **members: object
    ) -> tuple[Instance, dict[str, str]]:
        """A new one, with partition 0 by hand, or subscribed, or neither; and its part of paths."""
        name = f"i{next(_numbers)}"
        group = f"{self.topic}-{name}"
        made = world.create(group, name, valueFormat="string", **members)
        if state == "assigned":
            made.assign(self.partition)
        elif state == "subscribed":
            made.subscribe(self.topic)
        return made, {"group": group, "instance": name, "name": f"{group}.{name}"}

    def call(
        self,
        world: SidecarWorld,
        operation: str,
        *,
        body: object = ...,
        path: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """The operation as it should be called, but for what is given; `body` None is none."""
        known = CONTRACT.operations[operation]
        url = known.path.format(**self.names | (path or {}))
        body = self.body(operation) if body is ... else body
        sent: Any = {} if body is None or "content" in more else {"json": body}
        return world.http.request(known.method, url, **sent, **more)

    def body(self, operation: str) -> Any:
        """One that fits; None where there is none."""
        partition = self.partition
        one_offset = {"offsets": [{**partition, "offset": 0}]}
        record = {"records": [{"key": "k", "value": 1}]}
        bodies: dict[str, Any] = {
            "produce": record,
            "produce_in_transaction": {"topics": [{"topic": self.topic, **record}]},
            "create_instance": {},
            "subscribe": {"topics": [self.topic]},
            "seek": one_offset,
            "acknowledge": one_offset,
            "commit_offsets": one_offset,
            "query_ksqldb": {"query": "SELECT 1;"},
            "audit_records": [{"record": {**partition, "offset": 0}, "processed": True}],
            "set_loggers": [{"name": "services.sidecar.nothing", "level": "INFO"}],
            "reload_modules": [],
            "set_assault": {"enabled": False},
            "seek_consumer": {**partition, "offset": 0},
            "drain_consumer": {"timeoutMs": 1},
            "write_dead_letters": [{"record": {**partition, "offset": 0}, "processed": False}],
            "start_replay": {"topicName": ""},
            "create_topic": {"topic": f"{self.topic}-new-{next(_numbers)}", "partitions": 1},
        }
        for name in ("assign", "seek_to_first", "seek_to_last", "get_committed_offsets"):
            bodies[name] = {"partitions": [partition]}
        return bodies.get(operation)


Way = Callable[[Sidecars, str], httpx.Response]
FRESH = {"delete_instance", "subscribe", "unsubscribe", "assign", "get_subscriptions", "get_assignments"}
"""Of all other calls on instances, the instance has a partition."""


def done(all_: Sidecars, operation: str) -> httpx.Response:
    """As it should be called, on an instance of its own."""
    if {"{instance}", "{name}"} & set(CONTRACT.operations[operation].path.split("/")):
        _, names = all_.instance(all_.wide, state="fresh" if operation in FRESH else "assigned")
        return all_.call(all_.wide, operation, path=names)
    return all_.call(all_.wide, operation)


def misfit(all_: Sidecars, operation: str) -> httpx.Response:
    """A number is no body of any operation, and no name has 300 characters."""
    if all_.body(operation) is not None:
        return all_.call(all_.wide, operation, body=5)
    others: dict[str, Any] = {
        "get_log_content": {"params": {"loggerLevel": "LOUD"}},
        "describe_topic": {"path": {"topic": "no+topic"}},
        "replay_dead_letters": {"params": {"timeout": "soon"}},
        "read_dead_letters": {"params": {"timeout": "soon"}},
        "peek_dead_letters": {"params": {"limit": "0"}},
        "get_replay": {"path": {"id": "x" * 1000}},
        "cancel_replay": {"path": {"id": "x" * 1000}},
        "pause_consumer": {"path": {"name": "x" * 1000}},
        "read_stream_state": {"path": {"stream": "x" * 300}},
        "replace_stream": {"path": {"stream": "x" * 300}},
        "resume_consumer": {"path": {"name": "x" * 1000}},
    }
    return all_.call(all_.wide, operation, **others.get(operation, {"path": {"group": "x" * 300}}))


def with_schema(**members: object) -> Way:
    """A request for records that names its schemas so."""

    def way(all_: Sidecars, operation: str) -> httpx.Response:
        request = {"records": [{"value": "x"}], **members}
        body = request if operation == "produce" else {"topics": [{"topic": all_.topic, **request}]}
        return all_.call(all_.lonely if members.get("valueFormat") == "AVRO" else all_.wide, operation, body=body)

    return way


def on(world: str, **more: Any) -> Way:
    """As it should be called, but at this sidecar, or with this."""
    return lambda all_, operation: all_.call(getattr(all_, world), operation, **more)


def in_state(state: str, world: str = "wide", **more: Any) -> Way:
    def way(all_: Sidecars, operation: str) -> httpx.Response:
        _, names = all_.instance(getattr(all_, world), state=state)
        return all_.call(getattr(all_, world), operation, path=names, **more)

    return way


def elsewhere(all_: Sidecars, operation: str) -> httpx.Response:
    """A partition that the instance does not have."""
    other = {"topic": all_.topic, "partition": 1}
    bodies: Json = {"seek": {"offsets": [{**other, "offset": 0}]}, "seek_consumer": {**other, "offset": 0}}
    return all_.call(all_.wide, operation, body=bodies.get(operation, {"partitions": [other]}))


def of_no_topic(all_: Sidecars, operation: str) -> httpx.Response:
    return all_.call(
        all_.wide, operation, body={"offsets": [{"topic": f"{all_.topic}-not", "partition": 0, "offset": 0}]}
    )


def without_kafka(all_: Sidecars, operation: str) -> httpx.Response:
    """What only Kafka knows; waited for a moment."""
    _, names = all_.instance(all_.lonely)
    bodies: Json = {"seek": {"timestamps": [{**all_.partition, "timestamp": 0}]}, "seek_consumer": {"timestamp": 0}}
    body = bodies.get(operation, all_.body(operation))
    with (
        mock.patch.object(seeking, "ASK_SECONDS", A_MOMENT),
        mock.patch.object(group_consumer, "OFFSETS_SECONDS", A_MOMENT),
    ):
        return all_.call(all_.lonely, operation, path=names, body=body)


def topics_without_kafka(all_: Sidecars, operation: str) -> httpx.Response:
    with mock.patch.object(topics, "LIST_SECONDS", A_MOMENT):
        return all_.call(all_.closed, operation)


def topic_twice(all_: Sidecars, operation: str) -> httpx.Response:
    return all_.call(all_.wide, operation, body={"topic": all_.topic})


def refused_topic(all_: Sidecars, operation: str) -> httpx.Response:
    return all_.call(all_.wide, operation, body={"topic": f"{all_.topic}-no", "settings": {"no.such": "setting"}})


def unknown_topic(all_: Sidecars, operation: str) -> httpx.Response:
    topic = f"{all_.topic}-not"
    if operation == "produce_in_transaction":
        return all_.call(all_.wide, operation, body={"topics": [{"topic": topic, "records": [{"value": 1}]}]})
    return all_.call(all_.wide, operation, path={"topic": topic})


def twice(all_: Sidecars, operation: str) -> httpx.Response:
    all_.call(all_.wide, operation, body={"name": "twice"})
    return all_.call(all_.wide, operation, body={"name": "twice"})


def one_more(all_: Sidecars, operation: str) -> httpx.Response:
    all_.call(all_.closed, operation)
    return all_.call(all_.closed, operation)


def one_reader_more(all_: Sidecars, operation: str) -> httpx.Response:
    all_.call(all_.closed, "create_instance")
    return all_.call(all_.closed, operation, params={"topic": all_.topic, "group": "one-more"})


def of_an_unknown_schema(all_: Sidecars, operation: str) -> httpx.Response:
    """Partition 1 holds a record of a schema that only the registry knows."""
    made, _ = all_.instance(all_.wide, state="fresh", requestWaitMs=TOO_LONG_MS)
    made.assign({"topic": all_.topic, "partition": 1})
    return made.get(format="avro")


def in_a_group_of_others(all_: Sidecars, operation: str) -> httpx.Response:
    """Kafka takes no commit by hand for a group that has members."""
    member, names = all_.instance(all_.wide, state="subscribed")
    wait_until(lambda: member.read() or member.assignments(), "it has joined its group")
    group = names["group"]
    all_.wide.create(group, "by-hand", valueFormat="string").assign(all_.partition)
    return all_.call(all_.wide, operation, path={"group": group, "instance": "by-hand", "name": f"{group}.by-hand"})


def at_once(all_: Sidecars, operation: str) -> httpx.Response:
    """One transaction waits for Kafka, and others for it: the answer of one that got no turn."""
    keys = [{"Idempotency-Key": str(number)} for number in range(3)]

    def turned_away() -> httpx.Response | None:
        with ThreadPoolExecutor(len(keys)) as calls:
            answers = list(calls.map(lambda key: all_.call(all_.closed, operation, headers=key), keys))
        return next((one for one in answers if one.json()["code"] == "ERR12952"), None)

    return wait_until(turned_away, "they come at once")


def resumed_meanwhile(all_: Sidecars, operation: str) -> httpx.Response:
    """It has read, and not committed, so a drain of it waits."""
    made, names = all_.instance(all_.wide)
    all_.wide.produce(all_.topic, {"value": 1, "partition": 0})
    made.read_all(1, max_bytes=1)
    with ThreadPoolExecutor(1) as calls:
        drain = calls.submit(all_.call, all_.wide, operation, path=names, body={"timeoutMs": 10_000})
        while not drain.done():
            all_.call(all_.wide, "resume_consumer", path=names)
        return drain.result()


def standing_still(all_: Sidecars, operation: str) -> httpx.Response:
    health = all_.closed.sidecar.health
    with mock.patch.object(health, "liveness", lambda: {"producer": "stands still"}):
        return all_.call(all_.closed, operation)


JSON = {"Content-Type": "application/json"}
TOKENS, HTTP_SERVERS = "integration.sidecar.test_tokens", "integration.sidecar.test_http_servers"
TRANSACTIONS, EDGES = "integration.sidecar.test_transactions", "unit.sidecar.test_http_edges"
KSQLDB = "integration.sidecar.test_ksqldb"
STREAMING = "integration.sidecar.test_streaming"
PRODUCES = ("produce", "produce_in_transaction")

STREAMS = "integration.sidecar.test_streams"
REPLACED = "test_a_definition_takes_the_place_of_another_and_no_record_is_lost_or_counted_twice"

PROVOKED: dict[Answer, Way] = {
    (ANY, 200, None): done,
    ("create_topic", 201, None): done,
    ("create_topic", 400, "ERR12966"): refused_topic,
    ("create_topic", 409, "ERR12967"): topic_twice,
    (ANY, 204, None): done,
    ("produce", 202, None): on("wide", params={"async": "true"}),
    (ANY, 400, "ERR10015"): on("wide", content="{oops", headers=JSON),
    (ANY, 400, "ERR11014"): on("wide", body=None, headers=JSON),
    (ANY, 400, "ERR11004"): misfit,
    (ANY, 400, "ERR12901"): on("wide", content=" " * (MAX_BODY + 1), headers=JSON),
    (ANY, 404, "ERR12200"): on("wide", path={"instance": "nobody", "name": "nobody.nobody"}),
    (ANY, 400, "ERR12216"): on("idle"),
    (ANY, 400, "ERR11019"): on("idle"),
    ("liveness", 400, None): standing_still,
    ("readiness", 400, None): on("closed"),
    ("named_readiness", 400, None): on("closed"),
    ("admin_health", 400, None): on("closed"),
    ("create_instance", 400, "ERR12201"): on("wide", body={"autoOffsetReset": "sometimes"}),
    ("create_instance", 400, "ERR12202"): twice,
    ("create_instance", 400, "ERR12203"): on("lonely", body={"format": "AVRO"}),
    ("create_instance", 429, "ERR12902"): one_more,
    ("read_records", 400, "ERR12204"): in_state("assigned", "lonely", params={"format": "AVRO"}),
    ("read_records", 400, "ERR12205"): in_state("fresh"),
    ("read_records", 503, "ERR12920"): of_an_unknown_schema,
    ("subscribe", 409, "ERR12904"): in_state("assigned"),
    ("assign", 409, "ERR12904"): in_state("subscribed"),
    ("acknowledge", 409, "ERR12904"): in_state("assigned"),
    ("drain_consumer", 409, "ERR12904"): resumed_meanwhile,
    (ANY, 409, "ERR12904"): elsewhere,
    (ANY, 400, "ERR12205"): without_kafka,
    ("commit_offsets", 400, "ERR12207"): of_no_topic,
    ("seek_consumer", 400, "ERR12207"): in_a_group_of_others,
    (ANY, 503, "ERR12952"): at_once,
    (ANY, 400, "ERR12206"): with_schema(valueFormat="BINARY"),
    (ANY, 400, "ERR12208"): with_schema(valueFormat="AVRO"),
    (ANY, 400, "ERR12210"): with_schema(valueSchemaId=1, valueSchemaVersion=1),
    (ANY, 400, "ERR12211"): with_schema(valueSchemaId=1, valueSchema="{}"),
    (ANY, 400, "ERR12213"): with_schema(valueSchemaVersion=1, valueSchema="{}"),
    (ANY, 400, "ERR12214"): with_schema(valueSchema="{}"),
    (ANY, 400, "ERR12215"): with_schema(valueSchemaSubject="s", valueFormat="STRING"),
    ("produce", 503, "ERR12920"): with_schema(valueSchemaId=1),
    ("produce_in_transaction", 503, "ERR12920"): with_schema(valueSchemaId=1),
    ("produce", 404, None): unknown_topic,
    ("produce_in_transaction", 404, None): unknown_topic,
    ("get_server_info", 404, "ERR10013"): on("closed"),
    (ANY, 400, "ERR12108"): on("closed"),
    (ANY, 400, "ERR10084"): on("lonely", headers={"X-Adm-PassThrough": "true"}),
    (ANY, 502, "ERR10083"): on("wide", headers={"X-Adm-PassThrough": "true"}),
    ("set_loggers", 400, "ERR10059"): on("wide", body=None),
    ("get_log_content", 400, "ERR12110"): on("closed"),
    (ANY, 400, "ERR12217"): on("closed"),
    ("set_assault", 400, "ERR10065"): on("closed"),
    ("get_reader_asset", 404, "ERR10048"): on("wide", path={"asset": "other.js"}),
    ("get_home", 307, None): on("wide"),
    ("describe_topic", 404, "ERR12960"): unknown_topic,
    (ANY, 503, "ERR12961"): topics_without_kafka,
    (ANY, 404, "ERR12980"): on("wide"),
    ("audit_records", 400, "ERR30004"): on("lonely"),
    ("query_ksqldb", 400, "ERR30002"): on("wide"),
    ("replay_dead_letters", 400, "ERR11019"): on("wide"),
    ("read_dead_letters", 400, "ERR30001"): on("wide"),
    ("read_dead_letters", 429, "ERR12902"): one_reader_more,
    ("write_dead_letters", 400, "ERR30003"): on("wide"),
    ("peek_dead_letters", 404, "ERR12960"): on("wide", params={"topic": "not-there"}),
    ("start_replay", 400, "ERR12218"): on("wide"),
    (ANY, 404, "ERR12962"): on("wide"),
}

DEAD, REPLAYS = "integration.sidecar.test_dead_letters", "integration.sidecar.test_replays"

SHOWN: dict[Answer, str] = {
    ("replay_dead_letters", 200, None): f"{DEAD}:test_a_batch_goes_to_the_backend_and_is_committed",
    ("replay_dead_letters", 400, "ERR30001"): (
        f"{DEAD}:test_a_topic_that_is_not_configured_is_refused_in_the_originals_words"
    ),
    (
        "replay_dead_letters",
        409,
        "ERR12904",
    ): f"{DEAD}:test_a_group_that_has_members_is_refused_before_anything_is_sent",
    ("replay_dead_letters", 503, "ERR12961"): f"{DEAD}:test_while_kafka_is_away_calls_say_so",
    ("read_dead_letters", 200, None): f"{DEAD}:test_what_was_read_is_committed_once_it_is_answered",
    ("read_dead_letters", 400, "ERR12204"): f"{DEAD}:test_formats_are_the_sidecars_unless_the_call_says_otherwise",
    ("read_dead_letters", 400, "ERR12205"): f"{DEAD}:test_formats_are_the_sidecars_unless_the_call_says_otherwise",
    ("read_dead_letters", 409, "ERR12904"): f"{STREAMING}:test_one_stream_or_read_at_a_time",
    ("read_dead_letters", 503, "ERR12920"): f"{DEAD}:test_while_the_registry_is_away_nothing_is_skipped",
    ("write_dead_letters", 200, None): f"{DEAD}:test_a_backend_puts_records_among_the_dead_letters",
    ("peek_dead_letters", 200, None): f"{DEAD}:test_operators_look_at_dead_letters_and_nothing_moves",
    ("start_replay", 200, None): f"{REPLAYS}:test_the_originals_topic_of_commands_is_honoured",
    ("start_replay", 202, None): f"{REPLAYS}:test_a_range_goes_to_the_backend_and_nothing_else_moves",
    ("start_replay", 429, "ERR12963"): "unit.sidecar.jobs.test_jobs:test_jobs_are_bounded",
    ("get_replay", 200, None): f"{REPLAYS}:test_a_job_that_is_cancelled_ends_where_it_is",
    ("cancel_replay", 200, None): f"{REPLAYS}:test_a_job_that_is_cancelled_ends_where_it_is",
    ("read_stream_state", 200, None): f"{STREAMS}:test_state_is_read_by_key",
    ("read_stream_state", 404, "ERR12981"): f"{STREAMS}:test_state_is_read_by_key",
    (
        "read_stream_state",
        503,
        "ERR12982",
    ): f"{STREAMS}:test_without_kafka_a_topology_says_so_and_its_state_is_not_ready",
    ("replace_stream", 200, None): f"{STREAMS}:{REPLACED}",
    ("replace_stream", 409, "ERR12983"): f"{STREAMS}:{REPLACED}",
    ("shutdown", 200, None): "integration.sidecar.test_process:test_an_operator_reads_its_log_lines_and_ends_it",
    ("acknowledge", 200, None): f"{STREAMING}:test_the_window_opens_as_records_are_acknowledged",
    ("acknowledge", 400, "ERR12207"): "integration.sidecar.test_consuming:test_a_commit_that_kafka_refuses_says_why",
    ("query_ksqldb", 200, None): f"{KSQLDB}:test_the_backend_asks_and_has_rows_by_name",
    ("query_ksqldb", 503, "ERR12965"): f"{KSQLDB}:test_over_tls_with_a_password",
    ("audit_records", 503, "ERR12970"): (
        "integration.sidecar.test_auditing:test_a_full_audit_trail_holds_up_the_work_where_nothing_may_be_lost"
    ),
    ("produce", 503, "ERR12954"): "integration.sidecar.test_streaming_produce:test_streams_are_bounded",
    (ANY, 429, "ERR12903"): "integration.sidecar.test_contract_answers:test_too_many_calls_on_one_instance",
    (ANY, 431, "ERR12945"): f"{HTTP_SERVERS}:test_a_head_that_is_too_large",
    (ANY, 401, "ERR10000"): f"{TOKENS}:test_a_token_for_somebody_else",
    (ANY, 401, "ERR10001"): f"{TOKENS}:test_an_expired_token",
    (ANY, 401, "ERR10002"): f"{TOKENS}:test_no_operation_is_served_without_a_token",
    (ANY, 403, "ERR10005"): f"{TOKENS}:test_a_scope_that_is_lacking",
    (ANY, 403, "ERR12946"): f"{HTTP_SERVERS}:test_a_page_of_another_origin_gets_nothing_from_a_sidecar_without_tokens",
    (ANY, 503, "ERR12940"): f"{TOKENS}:test_while_the_issuer_is_away_its_last_keys_count",
    (ANY, 408, "ERR12941"): f"{HTTP_SERVERS}:test_a_body_that_does_not_come",
    (ANY, 429, "ERR12943"): f"{HTTP_SERVERS}:test_reads_that_wait_keep_nobody_from_producing",
    (ANY, 503, "ERR12942"): f"{HTTP_SERVERS}:test_an_answer_that_takes_too_long",
    (ANY, 503, "ERR12944"): f"{HTTP_SERVERS}:test_more_connections_than_there_is_room_for",
    (ANY, 503, "ERR12905"): "integration.sidecar.test_restart:test_a_second_process_on_the_same_folder_takes_over",
    (ANY, 500, "ERR10010"): f"{EDGES}:test_a_surprise_is_an_error_without_inside_knowledge",
    (
        ANY,
        409,
        "ERR12951",
    ): f"{TRANSACTIONS}:test_a_transaction_is_refused_over_clusters_of_which_one_is_too_old",
    (ANY, 422, "ERR12950"): f"{TRANSACTIONS}:test_a_key_is_for_one_request",
    (ANY, 503, "ERR12953"): f"{TRANSACTIONS}:test_without_kafka_a_transaction_is_answered_in_bounded_time",
    ("read_records", 409, "ERR12904"): f"{STREAMING}:test_one_stream_or_read_at_a_time",
    **{
        (operation, status, None): f"{EDGES}:test_all_failed_for_one_reason_is_a_failed_request"
        for operation in PRODUCES
        for status in (401, 403, 500, 503)
    },
}
