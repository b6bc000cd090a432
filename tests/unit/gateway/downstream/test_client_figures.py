"""The series of clients: sums stay right whoever comes and goes, and whichever client has no name of its own."""

from collections import defaultdict

from services.gateway import metrics
from services.gateway.downstream import client_figures
from services.gateway.downstream.client_figures import KEPT_S, MOST_CLIENTS, ClientFigures
from services.gateway.downstream.group_names import MOST_GROUPS
from services.gateway.requests.memory import Session
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode

PREFIX = "kafka_mesh_gateway_"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def session(client_id: str, *, principal: str = "User:ann") -> Session:
    return Session(client_id=client_id, software_name="librdkafka", software_version="2.10.0", principal=principal)


def answered(made: Session, requests: int) -> None:
    metrics.answered_of(made.calls, ApiKey.PRODUCE, 9).total += requests
    made.calls.bytes_in.total += 100 * requests
    made.calls.bytes_out.total += 10 * requests


def scraped(figures: ClientFigures, name: str) -> dict[str, float]:
    """By client id (and direction)."""
    found: dict[str, float] = defaultdict(float)
    for family in figures.collect():
        for sample in family.samples:
            if sample.name == f"{PREFIX}{name}":
                direction = sample.labels.get("direction", "")
                found[f"{sample.labels.get('client_id', '')} {direction}".strip()] += sample.value
    return dict(found)


def test_connections_of_one_client_are_one_series_and_keep_their_sum_when_they_end() -> None:
    connections = [session("shop"), session("shop"), session("audit")]
    figures = ClientFigures(lambda: list(connections))
    for made, requests in zip(connections, (3, 4, 5), strict=True):
        answered(made, requests)
    assert scraped(figures, "client_requests_total") == {"shop": 7, "audit": 5}
    answered(connections[0], 10)
    figures.left(connections.pop(0))
    assert scraped(figures, "client_requests_total") == {"shop": 17, "audit": 5}
    assert scraped(figures, "client_open_connections") == {"shop": 1, "audit": 1}
    assert scraped(figures, "client_traffic_bytes_total")["shop in"] == 1700
    assert scraped(figures, "client_traffic_bytes_total")["audit out"] == 50


def test_errors_are_those_of_the_client() -> None:
    made = session("shop")
    figures = ClientFigures(lambda: [made])
    for _ in range(2):
        metrics.count_error(made.calls, ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert scraped(figures, "client_errors_total") == {"shop": 2}


def test_labels_say_who_it_is() -> None:
    (family, *_) = ClientFigures(lambda: [session("shop")]).collect()
    (sample,) = family.samples
    assert sample.labels == {"client_id": "shop", "principal": "User:ann", "software": "librdkafka/2.10.0"}


def test_clients_beyond_the_budget_are_others_and_a_gauge_says_how_many() -> None:
    connections = [session(f"c{number:03}") for number in range(MOST_CLIENTS + 7)]
    for made in connections:
        answered(made, 1)
    figures = ClientFigures(lambda: connections)
    requests = scraped(figures, "client_requests_total")
    assert len(requests) == MOST_CLIENTS + 1
    assert (requests["other"], sum(requests.values())) == (7, len(connections))
    assert scraped(figures, "unnamed_clients") == {"": 7}
    assert scraped(figures, "client_open_connections")["other"] == 7


def test_clients_that_went_long_ago_make_room() -> None:
    clock, connections = Clock(), [session(f"old{number}") for number in range(MOST_CLIENTS)]
    figures = ClientFigures(lambda: list(connections), clock)
    assert scraped(figures, "unnamed_clients") == {"": 0}
    connections[:] = [session("young")]
    assert scraped(figures, "unnamed_clients") == {"": 1}
    clock.seconds = KEPT_S + 1
    assert scraped(figures, "unnamed_clients") == {"": 0}
    assert set(scraped(figures, "client_requests_total")) == {"young", "other"}


def test_a_connection_that_ends_during_a_scrape_is_added_behind_it() -> None:
    ending = session("shop")

    def sessions() -> list[Session]:
        answered(ending, 1)
        figures.left(ending)  # the scrape has the figures, so the loop must not wait for them
        return []

    figures = ClientFigures(sessions)
    assert scraped(figures, "client_requests_total") == {}
    figures._sessions = list
    assert scraped(figures, "client_requests_total") == {"shop": 1}


def test_names_have_a_bound() -> None:
    figures = ClientFigures(lambda: [session("c" * 10_000)])
    (name,) = scraped(figures, "client_requests_total")
    assert len(name) < 1000
    assert client_figures.OTHER.client_id == "other"


def test_members_are_counted_by_group_within_a_budget() -> None:
    connections = [session("shop") for _ in range(3)]
    for made in connections[:2]:
        made.uses.groups.note("orders")
    connections[2].uses.groups.note("audit")
    figures = ClientFigures(lambda: list(connections))
    assert by_group(figures) == {"orders": 2, "audit": 1}
    many = [session("shop") for _ in range(MOST_GROUPS)]
    for number, made in enumerate(many):
        made.uses.groups.note(f"g{number}")
    connections += many
    assert by_group(figures)["other"] == 2
    assert len(by_group(figures)) == MOST_GROUPS + 1


def by_group(figures: ClientFigures) -> dict[str, float]:
    return {
        sample.labels["group"]: sample.value
        for family in figures.collect()
        for sample in family.samples
        if sample.name == f"{PREFIX}group_connections"
    }
