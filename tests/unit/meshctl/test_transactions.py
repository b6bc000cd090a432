"""`meshctl transactions`: what is asked for, and how transactions, their parts and their ends are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from click.testing import Result

from mesh.rpc import transactions
from tests.unit.meshctl.scripted_control import Refusal, ScriptedControl

Meshctl = Callable[..., Result]


def half_done() -> transactions.Transaction:
    """A decided transaction whose commit is still to come on c2."""
    made = transactions.Transaction(
        name="transactions/pay/1",
        transactional_id="pay/1",
        state=transactions.TRANSACTION_STATE_DECIDED,
        home_cluster="c1",
        hanging=True,
        decision="committed by producer 7 (epoch 3) on c1; the commit is still to come on c2",
        problems=["cluster 'c3' does not answer: down"],
    )
    made.parts.add(cluster="c1", producer_id=7, producer_epoch=3, state="CompleteCommit").timeout.FromSeconds(60)
    part = made.parts.add(cluster="c2", producer_id=90, producer_epoch=5, state="Ongoing", waits_for_commit=True)
    part.timeout.FromMilliseconds(1500)
    part.topics.add(topic="bananas", partitions=[0, 2])
    part.topics.add(topic="__consumer_offsets", partitions=[31])
    for begun in (made.start_time, part.start_time):
        begun.FromDatetime(datetime.now(UTC) - timedelta(minutes=5, seconds=10))
    return made


def words(line: str) -> list[str]:
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_transactions_are_a_table_and_the_filters_are_asked_for(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["ListTransactions"] = transactions.ListTransactionsResponse(
        transactions=[half_done()], problems=["cluster 'c3' does not answer: down"]
    )
    shown = meshctl(
        "transactions", "list", "--hanging", "--older-than", "1h30m", "--id-prefix", "pay", "--state", "decided"
    )
    assert (shown.exit_code, shown.stderr) == (0, "cluster 'c3' does not answer: down\n")
    header, row = map(words, shown.stdout.splitlines())
    assert header == ["TRANSACTIONAL ID", "STATE", "HOME", "OPEN ON", "SINCE", "AGE", "HANGS"]
    assert [*row[:4], *row[5:]] == ["pay/1", "decided", "c1", "c2", "5 min", "yes"]
    wanted = transactions.ListTransactionsRequest(
        page_size=1000, id_prefix="pay", states=[transactions.TRANSACTION_STATE_DECIDED], hanging=True
    )
    wanted.older_than.FromTimedelta(timedelta(hours=1, minutes=30))
    assert control.requests("ListTransactions") == [wanted]


def test_all_pages_are_one_list_for_programs(control: ScriptedControl, meshctl: Meshctl) -> None:
    pages = {
        "": transactions.ListTransactionsResponse(transactions=[half_done()], next_page_token="more"),
        "more": transactions.ListTransactionsResponse(
            transactions=[transactions.Transaction(transactional_id="pay/2")]
        ),
    }
    control.answers["ListTransactions"] = lambda request: pages[request.page_token]
    shown = json.loads(meshctl("transactions", "list", "-o", "json").stdout)
    assert [each["transactional_id"] for each in shown["transactions"]] == ["pay/1", "pay/2"]
    assert shown["problems"] == []
    control.answers["ListTransactions"] = transactions.ListTransactionsResponse()
    assert meshctl("transactions", "list").stdout == "No transaction is like that.\n"


@pytest.mark.parametrize("span", ["soon", "", "5", "m"])
def test_a_length_of_time_that_is_none_is_refused(control: ScriptedControl, meshctl: Meshctl, span: str) -> None:
    refused = meshctl("transactions", "list", "--older-than", span)
    assert refused.exit_code == 2
    assert f"{span!r} is no length of time; possible are 90s, 10m, 2h, 1d, 1h30m" in refused.stderr
    assert control.requests("ListTransactions") == []


def test_one_transaction_is_described_with_all_its_parts(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetTransaction"] = half_done()
    shown = meshctl("transactions", "describe", "pay/1")
    assert (shown.exit_code, shown.stderr) == (0, "cluster 'c3' does not answer: down\n")
    first, decision, header, at_home, part = shown.stdout.splitlines()
    assert first == "pay/1: decided, hangs; home c1"
    assert decision == "decision: committed by producer 7 (epoch 3) on c1; the commit is still to come on c2"
    assert words(header) == ["CLUSTER", "STATE", "PRODUCER", "EPOCH", "SINCE", "AGE", "TIME-OUT", "PARTITIONS"]
    assert words(at_home) == ["c1", "CompleteCommit", "7", "3", "-", "-", "60 s", "-"]
    assert [each for at, each in enumerate(words(part)) if at != 4] == [
        "c2", "Ongoing, waits for its commit", "90", "5", "5 min", "1.5 s", "bananas/0,2; offsets of groups",
    ]  # fmt: skip
    (asked,) = control.requests("GetTransaction")
    assert asked == transactions.GetTransactionRequest(name="transactions/pay/1")
    assert json.loads(meshctl("transactions", "describe", "pay/1", "-o", "json").stdout)["hanging"] is True


@pytest.mark.parametrize(
    ("command", "method", "outcome"),
    [
        ("finish", "FinishTransaction", "committed on c2"),
        ("abort", "AbortTransaction", "aborted on c1, c2; its producer is fenced"),
    ],
)
def test_a_transaction_is_ended_and_the_outcome_is_said(
    control: ScriptedControl, meshctl: Meshctl, command: str, method: str, outcome: str
) -> None:
    ended = transactions.Transaction(transactional_id="pay/1", state=transactions.TRANSACTION_STATE_ENDED)
    control.answers[method] = transactions.EndTransactionResponse(revision=12, transaction=ended, outcome=outcome)
    shown = meshctl("transactions", command, "pay/1", "--reason", "its application is gone")
    assert (shown.exit_code, shown.stdout) == (0, f"pay/1: {outcome} (revision 12)\n")
    (asked,) = control.requests(method)
    assert (asked.name, asked.reason) == ("transactions/pay/1", "its application is gone")
    assert asked.request_id
    assert json.loads(meshctl("transactions", command, "pay/1", "-o", "json").stdout)["outcome"] == outcome


def test_a_refusal_of_control_is_shown_as_it_is(control: ScriptedControl, meshctl: Meshctl) -> None:
    text = "transaction 'pay/1' is decided. Finish it instead"
    control.answers["AbortTransaction"] = Refusal(grpc.StatusCode.FAILED_PRECONDITION, text)
    refused = meshctl("transactions", "abort", "pay/1")
    assert refused.exit_code != 0
    assert text in refused.stderr
