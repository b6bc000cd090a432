"""Rules about some clients, and the default cluster, with real clients: one gateway, one name, several places."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from mesh.routing import ClientMatch, ExactName, ForwardingRule, NamePrefix, NameRegex, Subject, UnmatchedTopics
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import DELIVERY_S, produce, read, read_all
from tests.integration.gateway.running import Rules
from tests.integration.gateway.stored import assert_stored_once
from tests.integration.gateway.test_moves import SteadyProducer, wait_for_progress

COUNT = 100
UNKNOWN_MS = 1500
"""So long a producer tries to reach a topic that does not exist."""
BETWEEN_MOVES = 100
"""Records acknowledged between two moves."""
SHOPS, TILLS = ClientMatch(client_id_prefix="shop-"), ClientMatch(client_id_prefix="till-")


def test_a_topic_moves_for_some_clients_while_all_write_and_nothing_is_lost(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, apples)

    def shops_on(cluster: str) -> ForwardingRule:
        return ForwardingRule("shops", ExactName(apples, client=SHOPS), cluster)

    everyone = ForwardingRule("everyone", ExactName(apples), "c1")
    gateway = start_gateway(rules.put(shops_on("c1"), everyone))
    config = {"enable.idempotence": True}
    shops = [SteadyProducer(gateway.address, apples, f"shop-{n}", **config) for n in range(2)]
    tills = [SteadyProducer(gateway.address, apples, f"till-{n}", **config) for n in range(2)]
    producers = [*shops, *tills]
    reader = Consumer(
        {
            "bootstrap.servers": gateway.address,
            "client.id": "till-reader",
            "group.id": f"tills-{apples}",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe([apples])
    try:
        for target in ("c2", "c1", "c2"):
            wait_for_progress(producers, BETWEEN_MOVES)
            gateway.move(rules.put(shops_on(target)))
        ends = [len(producer.acknowledged) for producer in producers]
        wait_until(
            lambda: all(len(p.acknowledged) > n + 20 for p, n in zip(producers, ends, strict=True)),
            "records at the end",
        )
    finally:
        for producer in producers:
            producer.stop()
    assert [producer.faults for producer in producers] == [[], [], [], []]
    stored = [read_all(cluster.bootstrap, apples) for cluster in (kafka_c1, kafka_c2)]
    assert_stored_once(stored[0] + stored[1], (value for p in producers for value in p.acknowledged))
    assert {value.split("-")[0] for value in stored[1]} == {"shop"}, "nobody else has moved"
    assert sorted(read(reader, len(stored[0]))) == sorted(stored[0]), "who has not moved reads on where it was"
    reader.close()
    assert sorted(read_all(gateway.address, apples, **{"client.id": "shop-reader"})) == sorted(stored[1])


def test_each_client_reads_and_writes_its_own_topic_of_one_name(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    """On one cluster by other names, and one on another cluster; groups of one name go with the topics."""
    for cluster, name, partitions in ((kafka_c1, f"shop.{apples}", 1), (kafka_c1, f"till.{apples}", 4)):
        create_topic(cluster, name, partitions)
    create_topic(kafka_c2, apples)
    gateway = start_gateway(
        rules.put(
            ForwardingRule("shops", ExactName(apples, client=SHOPS), "c1", upstream_topic="shop.{topic}"),
            ForwardingRule("tills", NamePrefix(apples, client=TILLS), "c1", upstream_topic="till.{topic}"),
            ForwardingRule("others", ExactName(apples), "c2"),
            ForwardingRule("groups of others", NameRegex(".*", Subject.GROUP, ClientMatch(client_id="x")), "c2"),
        )
    )
    places = {
        "shop-1": (kafka_c1, f"shop.{apples}", 1),
        "till-1": (kafka_c1, f"till.{apples}", 4),
        "x": (kafka_c2, apples, 3),
    }
    for client_id in places:
        produce(gateway.address, apples, [f"{client_id} {n}" for n in range(COUNT)], **{"client.id": client_id})
    for client_id, (cluster, name, partitions) in places.items():
        written = sorted(f"{client_id} {n}" for n in range(COUNT))
        assert sorted(read_all(cluster.bootstrap, name)) == written
        admin = AdminClient({"bootstrap.servers": gateway.address, "client.id": client_id})
        seen = admin.list_topics(timeout=20).topics
        assert [len(seen[name].partitions) for name in seen if apples in name] == [partitions]
        group = f"{client_id if client_id != 'x' else 'shop-1'}-of-{apples}"
        consumer = Consumer(
            {
                "bootstrap.servers": gateway.address,
                "client.id": client_id,
                "group.id": group,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([apples])
        assert sorted(read(consumer, COUNT)) == written
        consumer.commit(asynchronous=False)
        consumer.close()


@contextmanager
def door(source: str, address: str) -> Iterator[str]:
    """An address whose connections come to `address` from another one of this machine."""
    host, _, port = address.rpartition(":")
    loop = asyncio.new_event_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        await asyncio.gather(_copied(reader, here), _copied(there, writer))

    async def serve() -> int:
        server = await asyncio.start_server(carry, "127.0.0.1", entrance)
        return int(server.sockets[0].getsockname()[1])

    entrance = free_block(1)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(serve(), loop).result(10)
        yield f"127.0.0.1:{entrance}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


def test_the_network_that_a_client_comes_from_decides(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, apples)
    inside, outside = f"127.0.0.1:{free_block(1)}", f"127.0.0.1:{free_block(1)}"
    with door("127.0.0.2", outside) as entrance:
        table = rules.put(
            ForwardingRule("branch", ExactName(apples, client=ClientMatch(source_networks=("127.0.0.2/32",))), "c2"),
            ForwardingRule("everyone", ExactName(apples), "c1"),
        )
        start_gateway(table, listen=f"{inside},{outside}", advertised=f"{inside},{entrance}")
        for address, place in ((inside, kafka_c1), (entrance, kafka_c2)):
            values = [f"{address} {n}" for n in range(COUNT)]
            produce(address, apples, values)
            assert sorted(read_all(address, apples)) == sorted(read_all(place.bootstrap, apples)) == sorted(values)


def refused(address: str, topic: str) -> KafkaError | None:
    """Why a record for a topic that does not exist is given up."""
    faults: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": UNKNOWN_MS})
    producer.produce(topic, b"x", on_delivery=lambda error, _: faults.append(error))
    assert producer.flush(DELIVERY_S) == 0
    return faults[0]


def test_a_topic_that_no_rule_matches_lives_on_the_default_cluster_as_long_as_there_is_one(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
) -> None:
    ruled, other = unique_name("ruled"), unique_name("other")
    create_topic(kafka_c1, ruled)
    create_topic(kafka_c2, other)
    default = ForwardingRule("default", UnmatchedTopics(), "c2")
    gateway = start_gateway(rules.put(default, ForwardingRule("ruled", ExactName(ruled), "c1")))
    for topic, place in ((ruled, kafka_c1), (other, kafka_c2)):
        produce(gateway.address, topic, [f"{n}" for n in range(COUNT)])
        assert len(read_all(place.bootstrap, topic)) == COUNT
    assert len(read_all(gateway.address, other)) == COUNT
    gateway.move(rules.without(default.match))
    assert refused(gateway.address, other) is not None
    produce(gateway.address, ruled, ["x"])
    told = AdminClient({"bootstrap.servers": gateway.address}).list_topics(timeout=20).topics
    assert (ruled in told, other in told) == (True, False)
