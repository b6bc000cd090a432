"""Rules in their order; try a topic; edit, dry run, confirm.

The edit stands in the address of its dry run, so that a dry run can be shared. Only the confirmed change is a POST.
"""

from __future__ import annotations

from typing import Any

from mesh.rpc import admin, routing
from mesh.wording import decision_text, edit_text, match_text, rule_text, short, word
from services.console import words
from services.console.asking import Ask, change, choice, here, search, tick, wrong
from services.console.parts import (
    Cell,
    Cells,
    Control,
    Facts,
    Field,
    Form,
    Item,
    Moved,
    Notice,
    Page,
    Part,
    Table,
    Tone,
    hidden,
)
from services.console.views.traffic import hits_by_rule

ROWS = 100
MOST_TRIED = 100
"""The last one decides."""
MOST_PARTITIONS = 200
KINDS = tuple(each.name for each in routing.RuleMatch.DESCRIPTOR.oneofs_by_name["kind"].fields)
CONSENTS = {
    "create_missing_topics": "Create topics that are absent on the target",
    "accept_skip": "Go on although groups skip records",
    "allow_shadowed": "Accept a rule that never matches",
    "allow_unreachable": "Go on although a cluster does not answer",
}
EDIT_FIELDS = ("action", "rule", "kind", "name", "target_cluster", "upstream_topic", "before", *CONSENTS)
SUBJECTS = ("topic", "group", "transactional_id", "client_software")
CHANGE_TIMEOUT_S = 60.0
"""A change may wait for another one, and for the gateways' holds."""


async def listing(ask: Ask) -> Page:
    request = admin.ListRulesRequest(page_size=ROWS, page_token=ask.page_token)
    answer = await ask.caller.call(ask.caller.stubs.rules.ListRules, request)
    hits = await hits_by_rule(ask)
    counted = () if hits is None else ("Calls in the last hour",)
    rows: list[Cells] = [
        [
            Cell(short(each.name), f"/rules/{short(each.name)}"),
            each.place,
            match_text(each.spec.match),
            decision_text(each.spec),
            Cell(f"{each.revision:,}", f"/changes/{each.revision}"),
            f"{each.actor}, {words.age(each.update_time)}",
            *([f"{hits.get(each.name, 0):,}"] if hits is not None else []),
        ]
        for each in answer.rules
    ]
    table = Table(
        "In their order",
        ("Rule", "Place", "Matches", "Decides", "Revision", "Changed by", *counted),
        rows,
        "There is no rule.",
        more=ask.more(answer.next_page_token),
    )
    parts: list[Part] = [try_form(), table]
    links = [Cell("Add a rule", "/rules/new")] if ask.may_change else []
    return Page("Rules", parts, lead="The first rule that matches decides.", links=links)


def try_form(about: str = "topic", name: str = "", client_id: str = "", principal: str = "") -> Form:
    return search(
        "/explain",
        "Explain",
        Field("about", "About", Control.CHOICE, about, tuple((each, each.replace("_", " ")) for each in SUBJECTS)),
        Field("name", "Name", value=name, required=True),
        Field("client_id", "Client id", value=client_id, help="Optional."),
        Field("principal", "Principal", value=principal, help="Optional: User:alice."),
        title="Try the rules",
    )


async def explain(ask: Ask) -> Page:
    about, name = ask.said("about") or "topic", ask.said("name")
    client_id, principal = ask.said("client_id"), ask.said("principal")
    form = try_form(about, name, client_id, principal)
    if not name:
        return Page("Explain", [form], lead="Why a topic, a group or a client is treated as it is.")
    if about not in SUBJECTS:
        raise wrong("about", f"{about!r} is none of {', '.join(SUBJECTS)}")
    client = admin.ClientIdentity(client_id=client_id, principal=principal)
    request = admin.ExplainRequest(client=client)
    setattr(request, about, name)
    answer = await ask.caller.call(ask.caller.stubs.decisions.Explain, request)
    links: list[Cell] = []
    if about == "topic":
        links = [Cell("Its page", f"/topics/{name}"), Cell("Its history", here("/history", topic=name))]
    elif about == "group":
        links = [Cell("Its page", here(f"/groups/{name}"))]
    return Page(f"{about.replace('_', ' ').capitalize()} {name}", [form, *explained(answer, about)], links=links)


def explained(answer: admin.ExplainResponse, about: str = "topic") -> list[Part]:
    """Where something lives, and why."""
    decided = next((each for each in answer.tried if each.matched), None)
    facts: list[Item] = [
        ("Cluster", Cell(answer.cluster or "none", tone=Tone.GOOD if answer.cluster else Tone.WARNING)),
        ("Rule", Cell("none") if decided is None else Cell(rule_text(decided.rule.spec), rule_page(decided.rule))),
        ("Revision", f"{answer.revision:,}"),
    ]
    if about == "topic":
        facts.insert(1, ("Name there", Cell(answer.upstream_topic or words.NONE)))
        facts += [("Visits of that cluster", f"{answer.visit:,}"), ("Partitions there", f"{answer.partitions:,}")]
    tried: list[Cells] = [
        [Cell(short(each.rule.name), rule_page(each.rule)), "yes" if each.matched else "no", each.reason]
        for each in answer.tried[-MOST_TRIED:]
    ]
    left = len(answer.tried) - len(tried)
    note = f"{left:,} rules before these did not match." if left else ""
    partitions: list[Cells] = [
        [each.partition, _known(each.leader), _known(each.start), _known(each.end)]
        for each in answer.live_partitions[:MOST_PARTITIONS]
    ]
    more = len(answer.live_partitions) - len(partitions)
    parts: list[Part] = [
        Facts("Answer", facts),
        *(Notice(each) for each in answer.notes),
        Table("Rules tried", ("Rule", "Matched", "Why"), tried, "No rule was tried.", note),
    ]
    if partitions:
        columns = ("Partition", "Leader", "First offset", "End")
        parts.append(Table("Partitions", columns, partitions, "", f"{more} more are not shown." if more else ""))
    return parts


def _known(number: int) -> str:
    """Control says -1 of what nobody knows."""
    return words.NONE if number < 0 else f"{number:,}"


def rule_page(rule: admin.Rule) -> str:
    return f"/rules/{short(rule.name)}"


async def one(ask: Ask) -> Page:
    rule_id = ask.parameters["rule"]
    stubs = ask.caller.stubs
    name = f"rules/{rule_id}"
    found = await ask.caller.call(stubs.rules.GetRule, admin.GetRuleRequest(name=name))
    facts = Facts(
        "Rule",
        [
            ("Place", found.place),
            ("Matches", match_text(found.spec.match)),
            ("Decides", decision_text(found.spec)),
            ("Revision", Cell(f"{found.revision:,}", f"/changes/{found.revision}")),
            ("Changed by", f"{found.actor}, {words.moment(found.update_time)}"),
        ],
    )
    parts: list[Part] = [facts]
    if ask.may_change:
        parts.append(
            Form(
                "Change it",
                "/rules/check",
                "Dry run",
                (
                    hidden("action", "update"),
                    hidden("rule", rule_id),
                    await cluster_field(ask, found.spec.target_cluster),
                    Field(
                        "upstream_topic",
                        "Name on the cluster",
                        value=found.spec.upstream_topic,
                        help="A template, as {topic}.",
                    ),
                    *consents(ask),
                ),
            )
        )
        parts.append(
            Form(
                "Remove it",
                "/rules/check",
                "Dry run of the removal",
                (hidden("action", "remove"), hidden("rule", rule_id)),
            )
        )
    return Page(f"Rule {rule_id}", parts, links=[Cell("Its history", here("/history", name=name))])


async def new(ask: Ask) -> Page:
    kinds = tuple((each, each.replace("_", " ")) for each in KINDS)
    form = Form(
        "The rule",
        "/rules/check",
        "Dry run",
        (
            hidden("action", "create"),
            Field("kind", "Matches", Control.CHOICE, "topic", kinds),
            Field("name", "Name", help="Not for unmatched topics."),
            await cluster_field(ask, ""),
            Field("upstream_topic", "Name on the cluster", help="A template, as {topic}. Only for topics."),
            Field("before", "Before rule", help="Its id; empty: last."),
            *consents(ask),
        ),
    )
    return Page("New rule", [form], lead="The dry run changes nothing.")


async def cluster_field(ask: Ask, value: str) -> Field:
    answer = await ask.caller.call(ask.caller.stubs.clusters.ListClusters, admin.ListClustersRequest(page_size=1000))
    return choice("target_cluster", "Cluster", value, *(each.spec.cluster_name for each in answer.clusters))


def consents(ask: Ask) -> tuple[Field, ...]:
    return tuple(tick(name, label, ask.said(name)) for name, label in CONSENTS.items())


def edit_of(ask: Ask) -> admin.RuleEdit:
    """The edit that the fields say. CallError."""
    action, rule_id = ask.said("action"), ask.said("rule")
    spec = routing.RuleSpec(target_cluster=ask.said("target_cluster"), upstream_topic=ask.said("upstream_topic"))
    match action:
        case "update":
            request = admin.UpdateRuleRequest(name=f"rules/{rule_id}", rule=spec)
            request.update_mask.paths.extend(("target_cluster", "upstream_topic"))
            return admin.RuleEdit(update=request)
        case "remove":
            return admin.RuleEdit(remove=admin.RemoveRuleRequest(name=f"rules/{rule_id}"))
        case "create":
            kind = ask.said("kind")
            if kind not in KINDS:
                raise wrong("kind", f"{kind!r} is none of {', '.join(KINDS)}")
            setattr(spec.match, kind, True if kind == "unmatched_topics" else ask.said("name"))
            created = admin.CreateRuleRequest(rule=spec)
            if before := ask.said("before"):
                created.place.before = f"rules/{before}"
            return admin.RuleEdit(create=created)
        case _:
            raise wrong("action", f"{action!r} is none of create, update, remove")


def options_of(ask: Ask) -> admin.ChangeOptions:
    return admin.ChangeOptions(
        expected_revision=ask.number("expected_revision"),
        request_id=ask.said("request_id"),
        reason=ask.said("reason"),
        **{name: bool(ask.said(name)) for name in CONSENTS},  # type: ignore[arg-type]  # fields of one type
    )


async def check(ask: Ask) -> Page:
    """The dry run of an edit, and the form that confirms it."""
    edit = edit_of(ask)
    stubs = ask.caller.stubs
    rules = await ask.caller.call(stubs.rules.ListRules, admin.ListRulesRequest(page_size=1))
    options = options_of(ask)
    options.expected_revision = rules.revision
    answer = await ask.caller.call(stubs.rules.DryRun, admin.DryRunRequest(edits=[edit], options=options))
    worst = max((each.severity for each in answer.findings), default=admin.SEVERITY_UNSPECIFIED)
    parts: list[Part] = list(dry_run(answer))
    if ask.may_change:
        fields = [hidden(name, ask.said(name)) for name in EDIT_FIELDS if ask.said(name)]
        tone = Tone.BAD if worst == admin.SEVERITY_BREAKS else Tone.PLAIN
        submit = "Make the change all the same" if tone is Tone.BAD else "Make the change"
        confirm = change(
            "Confirm", "/rules/change", submit, *fields, hidden("expected_revision", rules.revision), tone=tone
        )
        parts.append(confirm)
    request: Any = getattr(edit, edit.WhichOneof("kind") or "")
    return Page(f"Dry run: {edit_text(request)}", parts, lead="Nothing has changed yet.")


def dry_run(answer: admin.DryRunResponse) -> list[Part]:
    """All that a dry run found."""
    findings: list[Cells] = [
        [words.toned(word(admin.Severity, each.severity)), each.subject, each.text] for each in answer.findings
    ]
    clients: list[Cells] = [
        [each.client_id, each.principal, each.software, each.host, short(each.gateway), f"{each.connections:,}"]
        for each in answer.clients
    ]
    homes = [[each.group or each.transactional_id, each.from_cluster, each.to_cluster] for each in answer.home_moves]
    parts = [
        Table("Findings", ("Severity", "About", "Finding"), findings, "The dry run found nothing to say."),
        *change_tables(answer.change),
        Table(
            "Clients that move", ("Client id", "Principal", "Software", "Host", "Gateway", "Connections"), clients,
            "No connected client moves.",
        ),
    ]  # fmt: skip
    if homes:
        parts.append(Table("Groups and transactional ids that move", ("Name", "From", "To"), homes, ""))
    return parts


def change_tables(of: admin.RuleChangeResponse) -> list[Part]:
    moves: list[Cells] = [words.move(each) for each in of.moves]
    effects: list[Cells] = [words.effect(each) for each in of.effects]
    return [
        Table("Topics that move", ("Topic", "From", "To", "Partitions"), moves, "No topic moves."),
        Table("What readers see", ("Topic", "Group", "Effect"), effects, "No record and no group is affected."),
        *(Notice(each, Tone.WARNING) for each in of.warnings),
    ]


async def make(ask: Ask) -> Moved:
    """The confirmed change."""
    edit, rules = edit_of(ask), ask.caller.stubs.rules
    kind = edit.WhichOneof("kind")
    method = {"create": rules.CreateRule, "update": rules.UpdateRule, "remove": rules.RemoveRule}[kind or ""]
    request: Any = getattr(edit, kind or "")
    request.options.CopyFrom(options_of(ask))
    answer = await ask.caller.call(method, request, timeout_s=CHANGE_TIMEOUT_S)
    return Moved(here(f"/changes/{answer.revision}", before=ask.said("expected_revision")))
