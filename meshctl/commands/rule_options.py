"""Shared options of commands about rules: the match, the place, the fields of a rule, and the change options."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

import click

from mesh import durations
from mesh.rpc import admin, events, routing
from meshctl.clients import client_match, network_error
from meshctl.completions import cluster_names, member_names, rule_ids
from meshctl.moments import FORMS, Moment

F = TypeVar("F", bound=Callable[..., Any])

AT = f"{__name__}.at"
"""The key of a scheduled change's time in the context of its command; None: now."""

MATCHES = {
    "topic": ("--topic", "T", "The topic of exactly this name."),
    "topic_prefix": ("--prefix", "P", "Every topic whose name begins with this."),
    "topic_regex": ("--regex", "R", "Every topic whose whole name matches this RE2 expression."),
    "group": ("--group", "G", "The consumer, share or streams group of exactly this id."),
    "group_prefix": ("--group-prefix", "P", "Every group whose id begins with this."),
    "group_regex": ("--group-regex", "R", "Every group whose whole id matches this RE2 expression."),
    "transactional_id": ("--transactional-id", "T", "Exactly this transactional id."),
    "transactional_id_prefix": ("--transactional-id-prefix", "P", "Every transactional id that begins with this."),
    "transactional_id_regex": ("--transactional-id-regex", "R", "Every one that as a whole matches this expression."),
    "client_software": ("--client-software", "NAME/VERSION", "Clients of exactly this software: librdkafka/2.10.0."),
    "client_software_prefix": ("--client-software-prefix", "P", "Clients whose name/version begins so: librdkafka/."),
    "client_software_regex": ("--client-software-regex", "R", "Clients whose name/version matches this expression."),
    "unmatched_topics": ("--unmatched-topics", "", "Every topic that no other rule matches: the default cluster."),
}
"""Field of RuleMatch -> its option; one without a value has no metavar."""
CLIENTS = {
    "client_id": ("--for-client-id", "ID", "Only for clients of exactly this client.id."),
    "client_id_prefix": ("--for-client-id-prefix", "P", "Only for clients whose client.id begins with this."),
    "software_name": ("--for-software", "NAME", "Only for clients of this software: librdkafka."),
    "principal": ("--for-principal", "P", "Only for this principal: User:alice."),
}
"""Field of ClientMatch -> its option."""
NODE_VIEWS = {
    "single": routing.NODE_VIEW_SINGLE,
    "per-cluster": routing.NODE_VIEW_PER_CLUSTER,
}
CONSENTS = (
    click.option(
        "--create-topics",
        is_flag=True,
        help="Create topics that move and are absent on their target; refused otherwise.",
    ),
    click.option(
        "--accept-skip", is_flag=True, help="Go on although groups would silently skip records; refused otherwise."
    ),
    click.option(
        "--allow-shadowed", is_flag=True, help="Accept a rule that can never match because an earlier one covers it."
    ),
    click.option(
        "--allow-unreachable",
        is_flag=True,
        help="Go on although a cluster does not answer; the topics on it are not checked.",
    ),
)
ALL_MATCHES = (
    "--topic, --prefix, --regex, --unmatched-topics, --group..., --transactional-id... or --client-software..."
)


def match_options(command: F) -> F:
    """--topic, --prefix, --group-regex and all others, given to the command as `match` (None when none is there)."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = {field: value for field in MATCHES if (value := kwargs.pop(field)) not in (None, False)}
        clients = {field: kwargs.pop(field) for field in (*CLIENTS, "source_networks")}
        if len(given) > 1:
            options = " and ".join(MATCHES[field][0] for field in given)
            raise click.UsageError(f"{options} exclude each other: a rule has one match")
        return command(*args, match=_match(given, clients), **kwargs)

    with_options = _client_options(wrapped)
    for field, (option, metavar, text) in reversed(MATCHES.items()):
        with_options = click.option(option, field, metavar=metavar or None, is_flag=not metavar, help=text)(
            with_options
        )
    return cast(F, with_options)


def _client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """For which clients, given to the command by the names of ClientMatch."""
    wrapped = click.option(
        "--from-network",
        "source_networks",
        metavar="CIDR",
        multiple=True,
        callback=_networks,
        help="Only for clients that connect from this network (10.1.0.0/16); may be given several times.",
    )(command)
    for field, (option, metavar, text) in reversed(CLIENTS.items()):
        wrapped = click.option(option, field, metavar=metavar, default="", help=text)(wrapped)
    return wrapped


def _networks(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for text in given:
        if error := network_error(text):
            raise click.BadParameter(error)
    return given


def _match(given: Mapping[str, Any], clients: Mapping[str, Any]) -> routing.RuleMatch | None:
    client = client_match(**clients)
    if not given:
        if client is not None:
            raise click.UsageError(f"say what the rule is about for these clients: {ALL_MATCHES}")
        return None
    match = routing.RuleMatch(client=client)
    for field, value in given.items():
        setattr(match, field, value)
    return match


def field_options(command: F) -> F:
    """The options for the fields of a rule; the given options reach the command as `fields`, by their names."""

    @click.option(
        "--to",
        "target_cluster",
        metavar="CLUSTER",
        shell_complete=cluster_names,
        help="The cluster of these topics, or the coordinating cluster of these groups or transactional ids.",
    )
    @click.option(
        "--upstream-topic",
        metavar="TEMPLATE",
        help="Topics: their name there, with {topic}, {suffix} (what follows the prefix) or {1} (groups of the "
        "expression): 'tenant.{topic}'; '' for the same name.",
    )
    @click.option(
        "--shadow-topics/--no-shadow-topics",
        default=None,
        help="Groups of the consumer protocol (KIP-848): the target cluster gets shadows of foreign topics, and keeps "
        "all offsets. A rule without this option forbids shadows; a group without a rule gets them.",
    )
    @click.option(
        "--span-clusters/--no-span-clusters",
        default=None,
        help="Without effect: all transactions may be over several clusters.",
        hidden=True,
    )
    @click.option("--nodes", type=click.Choice(list(NODE_VIEWS)), help="Client software: the nodes that it is shown.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        target_cluster: str | None,
        upstream_topic: str | None,
        shadow_topics: bool | None,
        span_clusters: bool | None,
        nodes: str | None,
        **kwargs: Any,
    ) -> Any:
        said = {
            "target_cluster": target_cluster,
            "upstream_topic": upstream_topic,
            "shadow_topics": shadow_topics,
            "span_clusters": span_clusters,
            "node_view": None if nodes is None else NODE_VIEWS[nodes],
        }
        return command(*args, fields={name: value for name, value in said.items() if value is not None}, **kwargs)

    return cast(F, wrapped)


def place_options(command: F) -> F:
    """--first, --before, --last, given to the command as `place` (None when none is there)."""

    @click.option("--first", is_flag=True, help="Before all other rules.")
    @click.option("--before", metavar="RULE", shell_complete=rule_ids, help="Right before this rule.")
    @click.option("--last", is_flag=True, help="After all other rules; so it is when a new rule has no place.")
    @functools.wraps(command)
    def wrapped(*args: Any, first: bool, before: str | None, last: bool, **kwargs: Any) -> Any:
        if first + last + (before is not None) > 1:
            raise click.UsageError("--first, --before and --last exclude each other: a rule has one place")
        place: admin.RulePlace | None = None
        if first:
            place = admin.RulePlace(first=True)
        elif before is not None:
            place = admin.RulePlace(before=rule_name(before))
        elif last:
            place = admin.RulePlace(last=True)
        return command(*args, place=place, **kwargs)

    return cast(F, wrapped)


def consent_options(command: F) -> F:
    """The options by which an operator accepts effects of a rule change; given to the command by their own names."""

    for option in reversed(CONSENTS):
        command = option(command)
    return command


def member_options(command: F) -> F:
    """Which gateways a change waits for; given to the command as `wait` and `without`."""
    without = click.option(
        "--without",
        multiple=True,
        metavar="MEMBER",
        shell_complete=member_names,
        help="Move topics although this gateway does not answer; again for each of several.",
    )
    wait = click.option(
        "--wait", is_flag=True, help="Return when every gateway runs it; else say who does not in time."
    )
    return wait(without(command))


def change_options(command: F) -> F:
    """The options of every change of the rule set, given to the command as `options`."""

    @click.option("--reason", default="", help="Why, for the history.")
    @click.option("--dry-run", is_flag=True, help="Check only and say what would change, and what groups will see.")
    @consent_options
    @click.option(
        "--expected-revision",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Refuse when the rules changed since revision N.",
    )
    @member_options
    @click.option(
        "--canary",
        type=click.FloatRange(0.1, 100),
        metavar="PERCENT",
        help="Let so many clients try it first; for what decides no place, like --nodes. See meshctl canary.",
    )
    @click.option(
        "--canary-on",
        multiple=True,
        metavar="MEMBER",
        shell_complete=member_names,
        help="Only clients of this gateway try it; again for each of several.",
    )
    @click.option(
        "--canary-for",
        type=click.FloatRange(1, 86_400),
        metavar="SECONDS",
        help="How long it is tried before everybody follows; 60 when not said.",
    )
    @click.option("--at", type=Moment(), metavar="WHEN", help=f"Schedule the change, do not make it now: {FORMS}.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        reason: str,
        dry_run: bool,
        create_topics: bool,
        accept_skip: bool,
        allow_shadowed: bool,
        allow_unreachable: bool,
        expected_revision: int,
        wait: bool,
        without: tuple[str, ...],
        canary: float | None,
        canary_on: tuple[str, ...],
        canary_for: float | None,
        at: datetime | None,
        **kwargs: Any,
    ) -> Any:
        if at is not None and (dry_run or wait):
            raise click.UsageError(
                f"--at and {'--dry-run' if dry_run else '--wait'} exclude each other: a scheduled change is checked "
                "at once, and nobody waits for it when its time has come"
            )
        click.get_current_context().meta[AT] = at
        options = admin.ChangeOptions(
            expected_revision=expected_revision, validate_only=dry_run, request_id=str(uuid.uuid4()), reason=reason,
            create_missing_topics=create_topics, accept_skip=accept_skip, allow_shadowed=allow_shadowed,
            allow_unreachable=allow_unreachable, without_members=without,
            wait_for=admin.WAIT_FOR_ALL_MEMBERS if wait else admin.WAIT_FOR_UNSPECIFIED,
        )  # fmt: skip
        if canary is not None or canary_on or canary_for is not None:
            options.canary.CopyFrom(
                events.Canary(
                    members=canary_on,
                    permille=round(10 * (canary or 100)),
                    duration=durations.of_ms(round(1000 * (canary_for or 0))),
                )
            )
        return command(*args, options=options, **kwargs)

    return cast(F, wrapped)


def rule_name(given: str) -> str:
    """The resource name of a rule given by id or by name."""
    return given if given.startswith("rules/") else f"rules/{given}"
