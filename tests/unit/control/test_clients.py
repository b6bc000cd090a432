"""Which clients control tells of, in which order, and what each line has."""

import pytest

from mesh.rpc import clients, discovery
from services.control.domain.errors import InvalidField
from services.control.domain.members.clients import listed, release_of


def client(client_id: str, **said: object) -> discovery.ConnectedClient:
    return discovery.ConnectedClient(client_id=client_id, principal="User:alice", **said)  # type: ignore[arg-type]


OLD = clients.ClientApi(api="Produce", lowest_version=2, highest_version=9, removed_in="4.0")
NEW = clients.ClientApi(api="Produce", lowest_version=9, highest_version=9, errors=[clients.ClientError(error="X")])
REPORTS = {
    "g2": discovery.ClientReport(clients=[client("shop", topics=["apples", "pears"], produced=[1], consumed=[0, 7])]),
    "g1": discovery.ClientReport(
        clients=[client("till", apis=[OLD], groups=["tills"]), client("audit", apis=[NEW], topics=["apples"])]
    ),
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["audit", "till", "shop"]),
        ({"gateway": "g1"}, ["audit", "till"]),
        ({"topic": "apples"}, ["audit", "shop"]),
        ({"topic": "apples", "gateway": "g2"}, ["shop"]),
        ({"group": "tills"}, ["till"]),
        ({"client_id": "shop"}, ["shop"]),
        ({"principal": "User:bob"}, []),
        ({"with_errors": True}, ["audit"]),
        ({"removed_by": "3.9"}, []),
        ({"removed_by": "4.0"}, ["till"]),
        ({"removed_by": "4.1.1"}, ["till"]),
        ({"removed_by": "10.0"}, ["till"]),
    ],
    ids=str,
)
def test_clients_are_told_by_gateway_and_name(wanted: dict[str, object], found: list[str]) -> None:
    request = clients.ListClientsRequest(**wanted)  # type: ignore[arg-type]
    assert [each.client_id for _, each in listed(REPORTS, request)] == found


def test_a_line_says_what_is_produced_and_what_is_consumed() -> None:
    ((_, shop),) = listed(REPORTS, clients.ListClientsRequest(gateway="g2"))
    assert (shop.gateway, list(shop.produces_to), list(shop.consumes_from)) == ("g2", ["pears"], ["apples"])


@pytest.mark.parametrize("text", ["", "four", "4", "4.", "4.0.0.0", "99999.0"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="no release of Kafka"):
        release_of(text)
