"""Quotas of clients: the list, which of them count for a client, and changes with a check first."""

from __future__ import annotations

import math

from mesh.quotas import DEFAULT, Entity, Key
from mesh.quotas.codec import UnknownQuotaError, entity_from_proto, entity_to_proto, key_from_proto, key_to_proto
from mesh.quotas.entity import Name
from mesh.quotas.words import change_text, quota_text
from mesh.rpc import quotas
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here, search, wrong
from services.console.parts import Cell, Cells, Control, Facts, Field, Form, Moved, Notice, Page, Part, Table, hidden

PARTS = ("user", "client_id", "ip")
FIELDS = (*PARTS, "quota", "value")
UNKNOWN = "a kind that this release does not know"


async def listing(ask: Ask) -> Page:
    user, client_id, ip = (ask.said(name) for name in PARTS)
    request = quotas.ListQuotasRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    explaining = quotas.ExplainClientQuotasRequest(user=user, client_id=client_id, ip=ip)
    stubs = ask.caller.stubs
    answer = await ask.caller.call(stubs.quotas.ListQuotas, request)
    form = search("/quotas", "Explain", *_entity_fields(user, client_id, ip), title="Which quotas count for a client?")
    parts: list[Part] = [form]
    if user or client_id or ip:
        counting = await ask.caller.call(stubs.quotas.ExplainClientQuotas, explaining)
        parts.append(Notice("For this client", items=list(counting.explanations) or ["no quota counts"]))
    columns = ("Of", "Quota", "Value", "Unit")
    table = Table(
        "Quotas", columns, [_row(ask, each) for each in answer.quotas], "There is no quota.",
        f"Of revision {answer.revision:,}." if answer.revision else "", ask.more(answer.next_page_token),
    )  # fmt: skip
    parts.append(table)
    if ask.may_change:
        parts.append(_set_form())
    return Page("Quotas", parts, lead="How fast clients may produce, fetch, ask and connect, over all gateways.")


def _entity_fields(user: str = "", client_id: str = "", ip: str = "") -> tuple[Field, ...]:
    return (
        Field("user", "User", value=user, help="Without User:"),
        Field("client_id", "Client id", value=client_id),
        Field("ip", "Address", value=ip),
    )


def _set_form() -> Form:
    keys = tuple((key.value, f"{key.value} ({key.unit})") for key in Key)
    by_default = f"{DEFAULT.value} for each one without a quota of its own."
    return Form(
        "Set a quota",
        "/quotas/check",
        "Check it",
        (
            Field("user", "User", help=f"Without User:; {by_default}"),
            Field("client_id", "Client id", help="With a user, or alone."),
            Field("ip", "Address", help="Alone."),
            Field("quota", "Quota", Control.CHOICE, keys[0][0], keys),
            Field("value", "Value", required=True),
        ),
    )


def _row(ask: Ask, of: quotas.Quota) -> Cells:
    entity = entity_from_proto(of.entity)
    try:
        key = key_from_proto(of.key)
    except UnknownQuotaError:
        return [str(entity), UNKNOWN, f"{of.value:.15g}", words.NONE]
    parts = dict(zip(PARTS, map(_said, (entity.user, entity.client_id, entity.ip)), strict=True))
    value = f"{of.value:.15g}"
    linked = Cell(key.value, here("/quotas/check", **parts, quota=key.value)) if ask.may_change else key.value
    return [str(entity), linked, value, key.unit]


def _said(name: Name | None) -> str:
    return "" if name is None else name if isinstance(name, str) else name.value


def _name(text: str) -> Name | None:
    return DEFAULT if text == DEFAULT.value else text or None


def _change(ask: Ask) -> quotas.QuotaChange:
    """The change that the fields say; without a value, the quota goes."""
    entity = Entity(*(_name(ask.said(name)) for name in PARTS))
    if entity == Entity():
        raise wrong("user", "name a user, a client id or an address")
    try:
        key = Key(ask.said("quota"))
    except ValueError:
        raise wrong("quota", f"{ask.said('quota')!r} is none of {', '.join(each.value for each in Key)}") from None
    wanted = quotas.QuotaChange(entity=entity_to_proto(entity), key=key_to_proto(key))
    if text := ask.said("value"):
        try:
            wanted.value = float(text)
        except ValueError:
            raise wrong("value", f"{text!r} is no number") from None
        if not math.isfinite(wanted.value):
            raise wrong("value", f"{text!r} is no number")
    return wanted


async def check(ask: Ask) -> Page:
    """What is so now, and what would be."""
    wanted = _change(ask)
    stubs = ask.caller.stubs
    present = await ask.caller.call(
        stubs.quotas.ListQuotas, quotas.ListQuotasRequest(entity=wanted.entity, page_size=PAGE_SIZE)
    )
    before = next((quota_text(each) for each in present.quotas if each.key == wanted.key), "no such quota")
    facts = Facts("Change", [("Now", before), ("Then", change_text(wanted))])
    fields = [hidden(name, ask.said(name)) for name in FIELDS if ask.said(name)]
    parts: list[Part] = [facts]
    if ask.may_change:
        parts.append(change("Confirm", "/quotas/change", "Make the change", *fields))
        if wanted.HasField("value"):
            return Page("Check: a quota", parts, lead="Nothing has changed yet.")
        parts.insert(1, Notice("Without a value the quota is removed. To set another value, fill in this form."))
        again = [hidden(name, ask.said(name)) for name in (*PARTS, "quota") if ask.said(name)]
        parts.append(Form("Another value", "/quotas/check", "Check it", (*again, Field("value", "Value"))))
    return Page("Check: a quota", parts, lead="Nothing has changed yet.")


async def make(ask: Ask) -> Moved:
    request = quotas.ChangeQuotasRequest(
        changes=[_change(ask)], reason=ask.said("reason"), request_id=ask.said("request_id")
    )
    answer = await ask.caller.call(ask.caller.stubs.quotas.ChangeQuotas, request)
    return Moved(f"/changes/{answer.revision}" if answer.changed else "/quotas")
