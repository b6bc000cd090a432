"""Transactions over all clusters: what is open, what hangs, and their end by an operator."""

from __future__ import annotations

from mesh.rpc import transactions
from mesh.wording import word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here, search, tick
from services.console.parts import Cell, Cells, Facts, Field, Moved, Notice, Page, Part, Table, Tone

TIMEOUT_S = 30.0
"""Control asks the coordinators of all clusters."""


async def listing(ask: Ask) -> Page:
    prefix, hanging = ask.said("prefix"), ask.said("hanging")
    request = transactions.ListTransactionsRequest(
        page_size=PAGE_SIZE, page_token=ask.page_token, id_prefix=prefix, hanging=bool(hanging)
    )
    answer = await ask.caller.call(ask.caller.stubs.transactions.ListTransactions, request, timeout_s=TIMEOUT_S)
    rows: list[Cells] = [
        [
            Cell(each.transactional_id, here(f"/transactions/{each.transactional_id}")),
            words.toned(word(transactions.TransactionState, each.state)),
            Cell("hangs", tone=Tone.BAD) if each.hanging else "in time",
            each.home_cluster,
            ", ".join(part.cluster for part in each.parts),
            words.age(each.start_time),
        ]
        for each in answer.transactions
    ]
    form = search(
        "/transactions",
        "Filter",
        Field("prefix", "Transactional id begins with", value=prefix),
        tick("hanging", "Only those that hang", hanging),
        title="Filter",
    )
    columns = ("Transactional id", "State", "Time-out", "Home", "Clusters", "Began")
    more = ask.more(answer.next_page_token)
    parts: list[Part] = [form, *(Notice(each, Tone.WARNING) for each in answer.problems)]
    parts.append(Table("Open transactions", columns, rows, "No transaction is open.", more=more))
    return Page("Transactions", parts)


async def one(ask: Ask) -> Page:
    name = ask.parameters["name"]
    request = transactions.GetTransactionRequest(name=f"transactions/{name}")
    found = await ask.caller.call(ask.caller.stubs.transactions.GetTransaction, request, timeout_s=TIMEOUT_S)
    facts = Facts(
        "Transaction",
        [
            ("State", words.toned(word(transactions.TransactionState, found.state))),
            ("Hangs", "yes" if found.hanging else "no"),
            ("Decision", found.decision or "nothing is decided"),
            ("Home", found.home_cluster),
            ("Began", words.moment(found.start_time)),
        ],
    )
    rows: list[Cells] = [
        [
            each.cluster,
            each.state,
            f"{each.producer_id}/{each.producer_epoch}",
            "; ".join(f"{topic.topic} {', '.join(map(str, topic.partitions))}" for topic in each.topics) or words.NONE,
            "yes" if each.waits_for_commit else "no",
        ]
        for each in found.parts
    ]
    columns = ("Cluster", "State", "Producer id/epoch", "Partitions", "Waits for its commit")
    parts: list[Part] = [*(Notice(each, Tone.WARNING) for each in found.problems), facts]
    parts.append(Table("Parts", columns, rows, "No cluster has a part of it."))
    if ask.may_change and found.state == transactions.TRANSACTION_STATE_DECIDED:
        parts.append(change("Finish it", f"/transactions/{name}/finish", "Commit the parts that wait"))
    if ask.may_change and found.state == transactions.TRANSACTION_STATE_UNDECIDED:
        submit = "Abort it, and fence its producer"
        parts.append(change("Abort it", f"/transactions/{name}/abort", submit, tone=Tone.BAD))
    return Page(f"Transaction {name}", parts)


async def finish(ask: Ask) -> Moved:
    name = ask.parameters["name"]
    request = transactions.FinishTransactionRequest(
        name=f"transactions/{name}", reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.transactions.FinishTransaction, request, timeout_s=TIMEOUT_S)
    return Moved(here(f"/transactions/{name}"))


async def abort(ask: Ask) -> Moved:
    name = ask.parameters["name"]
    request = transactions.AbortTransactionRequest(
        name=f"transactions/{name}", reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    await ask.caller.call(ask.caller.stubs.transactions.AbortTransaction, request, timeout_s=TIMEOUT_S)
    return Moved(here(f"/transactions/{name}"))
