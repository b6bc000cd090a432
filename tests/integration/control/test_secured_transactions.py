"""Control asks the coordinators of a secured cluster about transactions, and ends one there."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from mesh.rpc import transactions, transactions_grpc
from mesh.transactions import TRANSACTIONS_TOPIC
from tests.fixtures.secured_kafka import SecuredKafka
from tests.fixtures.sweeps import mostly
from tests.integration.control.world import CALL, World, create_topic, until

ANSWER_S = 20.0
SECRETS = frozenset({"sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"})


def begun(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    """A producer with an open transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    assert producer.flush(ANSWER_S) == 0
    return producer


def referred(properties: dict[str, str], folder: Path) -> dict[str, str]:
    """The properties with their secrets in files, as control demands."""
    told = dict(properties)
    for key in SECRETS & properties.keys():
        (folder / key).write_text(properties[key], encoding="utf-8")
        told[key] = f"${{file:{folder / key}}}"
    return told


@pytest.mark.parametrize(
    "name",
    mostly(["mutual tls", "SCRAM-SHA-512 over tls"], ["tls", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER over tls"]),
)
async def test_a_transaction_on_a_secured_cluster_is_listed_shown_and_aborted(
    name: str, secured: SecuredKafka, database: str, events_topic: str, tmp_path: Path
) -> None:
    way, topic = secured.way(name), f"{events_topic}.apples"
    transactional_id = f"{events_topic}/id"
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    if TRANSACTIONS_TOPIC not in admin.list_topics(timeout=ANSWER_S).topics:
        create_topic(secured.bootstrap, TRANSACTIONS_TOPIC, 5)
    create_topic(secured.bootstrap, topic, 1)
    producer = await asyncio.to_thread(begun, secured.bootstrap, transactional_id, topic)
    async with World(database, way.bootstrap, events_topic, home_properties=way.properties) as world:
        await world.register("secured", way.bootstrap, producer_config=referred(way.properties, tmp_path))
        service = transactions_grpc.TransactionServiceStub(world.channel)
        wanted = transactions.ListTransactionsRequest(id_prefix=transactional_id)
        listed = transactions.ListTransactionsResponse()

        async def is_listed() -> bool:
            nonlocal listed
            listed = await service.ListTransactions(wanted, timeout=CALL)
            return not listed.problems

        try:
            await until(is_listed, "the cluster can be asked")
        except TimeoutError as error:
            error.add_note(str(list(listed.problems)))
            raise
        (found,) = listed.transactions
        shown = await service.GetTransaction(transactions.GetTransactionRequest(name=found.name), timeout=CALL)
        (part,) = shown.parts
        assert (part.cluster, part.state, [each.topic for each in part.topics]) == ("secured", "Ongoing", [topic])
        await service.AbortTransaction(
            transactions.AbortTransactionRequest(name=found.name, reason="a test", request_id=str(uuid.uuid4())),
            timeout=CALL,
        )
        with pytest.raises(KafkaException):
            await asyncio.to_thread(producer.commit_transaction, ANSWER_S)

        async def has_ended() -> bool:
            """Markers are written behind the answer."""
            shown = await service.GetTransaction(transactions.GetTransactionRequest(name=found.name), timeout=CALL)
            return (shown.state, list(shown.parts[0].topics)) == (transactions.TRANSACTION_STATE_ENDED, [])

        await until(has_ended, "the transaction has ended, and with it its part")
