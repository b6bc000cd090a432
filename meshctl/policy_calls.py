"""Options and results that the commands about policies share: ACLs, quotas, validation, protection, tenants."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import click

from meshctl.connection import PAGE_SIZE
from meshctl.output import as_dict, count, print_json
from meshctl.session import Session

reason_option = click.option("--reason", default="", help="Why, for the history.")
at_option = click.option("--at", "at_revision", type=click.IntRange(min=1), metavar="REVISION", help="As it was then.")


def topics_of(topic: str | None, topic_prefix: str | None) -> tuple[str, bool]:
    """The name, and whether the name is a prefix. UsageError unless one of both is there."""
    name = topic_prefix if topic is None else topic
    if name is None or (topic is not None and topic_prefix is not None):
        raise click.UsageError("name topics by either --topic or --topic-prefix")
    return name, topic is None


def make_changes(
    session: Session, method: Any, request: Any, text: Callable[[Any], str], noun: str, reason: str
) -> None:
    """Asks control for the changes of a request, and shows those that were made. `noun`: "rule"."""
    request.reason, request.request_id = reason, str(uuid.uuid4())
    answer = session.connect().call(method, request)
    if session.as_json:
        print_json(answer)
        return
    for each in answer.changed:
        click.echo(text(each))
    click.echo(f"{count(len(answer.changed), noun)} changed (revision {answer.revision})")


def pages(session: Session, method: Any, request: Any) -> Iterable[Any]:
    """All pages of a list."""
    request.page_size = PAGE_SIZE
    return session.connect().pages(method, request)


def show_list(session: Session, method: Any, request: Any, field: str, text: Callable[[Any], str], empty: str) -> None:
    """Shows the items that all pages have in this field; `empty` if there are none."""
    found = list(pages(session, method, request))
    items = [each for page in found for each in getattr(page, field)]
    if session.as_json:
        print_json({"revision": found[0].revision, field: [as_dict(each) for each in items]})
        return
    for line in map(text, items) if items else (empty,):
        click.echo(line)
