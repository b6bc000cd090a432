"""Subscriptions of sidecars: those that operators declared, what each sidecar says of its own; withdraw one."""

from __future__ import annotations

from collections.abc import Sequence

from mesh.rpc import subscriptions
from mesh.wording import short, word
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here
from services.console.outcomes import CallError, Ending
from services.console.parts import Cell, Cells, Facts, Item, Moved, Notice, Page, Part, Table, Tone

MOST_REPORTS = 300


async def listing(ask: Ask) -> Page:
    request = subscriptions.ListSubscriptionsRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.subscriptions.ListSubscriptions, request)
    rows: list[Cells] = [
        [
            Cell(each.name, f"/subscriptions/{each.name}"), ", ".join(each.sidecars), _topics(each.spec),
            each.spec.group or words.NONE, f"{each.actor}, {words.age(each.time)}",
        ]
        for each in answer.subscriptions
    ]  # fmt: skip
    columns = ("Subscription", "Sidecars", "Topics", "Group", "Declared by")
    declared = Table("Declared", columns, rows, "No subscription is declared.", more=ask.more(answer.next_page_token))
    parts: list[Part] = [declared, _reports(answer.reports, answer.reports_left_out)]
    if answer.silent_sidecars:
        parts.append(Notice("These sidecars say nothing of subscriptions", items=list(answer.silent_sidecars)))
    lead = "The topics that sidecars read for their backends. Declare one by meshctl sidecars subscriptions add."
    return Page("Subscriptions", parts, lead=lead)


def _topics(of: subscriptions.SubscriptionSpec) -> str:
    return ", ".join(of.topics) or (f"pattern {of.topic_pattern}" if of.topic_pattern else words.NONE)


def _reports(found: Sequence[subscriptions.SubscriptionReport], left_out: int) -> Table:
    rows: list[Cells] = [
        [
            Cell(each.sidecar, f"/sidecars/{each.sidecar}"),
            each.name or "its own settings",
            word(subscriptions.SubscriptionSource, each.source),
            words.toned(word(subscriptions.SubscriptionState, each.state)),
            Cell(short(each.instance), f"/{each.instance}") if each.instance else words.NONE,
            Cell(each.problem, tone=Tone.BAD) if each.problem else words.NONE,
        ]
        for each in found[:MOST_REPORTS]
    ]
    left = left_out + len(found) - len(rows)
    note = f"{left:,} more reports are not shown." if left else ""
    columns = ("Sidecar", "Subscription", "From", "State", "Instance", "Problem")
    return Table("What sidecars say", columns, rows, "No sidecar reports a subscription.", note)


async def one(ask: Ask) -> Page:
    name = ask.parameters["subscription"]
    found: subscriptions.DeclaredSubscription | None = None
    reports: list[subscriptions.SubscriptionReport] = []
    left, token = 0, ""
    while True:
        request = subscriptions.ListSubscriptionsRequest(page_size=100, page_token=token)
        answer = await ask.caller.call(ask.caller.stubs.subscriptions.ListSubscriptions, request)
        found = found or next((each for each in answer.subscriptions if each.name == name), None)
        reports += [each for each in answer.reports if each.name == name]
        left, token = answer.reports_left_out, answer.next_page_token
        if not token:
            break
    if found is None:
        raise CallError(Ending.ABSENT, "NOT_FOUND", f"No subscription {name!r} is declared.")
    facts: list[Item] = [
        ("Sidecars", ", ".join(found.sidecars)),
        ("Topics", _topics(found.spec)),
        ("Revision", Cell(f"{found.revision:,}", f"/changes/{found.revision}")),
        ("Declared", f"{words.moment(found.time)} by {found.actor}"),
        ("Why", found.reason or words.NONE),
    ]
    members: list[Cells] = [
        [field.name, str(value)] for field, value in found.spec.ListFields() if not field.is_repeated
    ]
    members += [["route", f"{each.when} -> {each.path}"] for each in found.spec.routes]
    parts: list[Part] = [
        Facts("Subscription", facts),
        Table("Members", ("Member", "Value"), members, "All members are as the sidecars' settings have them."),
        _reports(reports, left),
    ]
    if ask.may_change:
        parts.append(
            change("Withdraw it", f"/subscriptions/{name}/withdraw", "Withdraw the subscription", tone=Tone.BAD)
        )
    return Page(
        f"Subscription {name}", parts, links=[Cell("Its history", here("/history", name=f"subscriptions/{name}"))]
    )


async def withdraw(ask: Ask) -> Moved:
    request = subscriptions.WithdrawSubscriptionRequest(
        name=f"subscriptions/{ask.parameters['subscription']}", reason=ask.said("reason"),
        request_id=ask.said("request_id"),
    )  # fmt: skip
    answer = await ask.caller.call(ask.caller.stubs.subscriptions.WithdrawSubscription, request)
    return Moved(f"/changes/{answer.revision}")
