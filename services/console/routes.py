"""Every page of the console: its address, and its view. The menu and the palette show the pages with a label."""

from __future__ import annotations

from dataclasses import dataclass

from services.console.asking import View
from services.console.views import (
    changes,
    clients,
    dead_letters,
    groups,
    mesh_map,
    moves,
    overview,
    past,
    people,
    pipelines,
    policies,
    quotas,
    receipts,
    record_rules,
    record_writing,
    records,
    replaying,
    rules,
    schedules,
    sidecars,
    subscriptions,
    taking_back,
    topics,
    traffic,
    transactions,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One page."""

    path: str
    view: View
    label: str = ""
    in_menu: bool = True
    """A page with a label that is not in the menu is in the palette alone."""


PAGES = (
    Row("/", overview.overview, "Overview"),
    Row("/map", mesh_map.page, "Map"),
    Row("/topics", topics.listing, "Topics"),
    Row("/topics/{topic}", topics.one),
    Row("/records", records.listing, "Records"),
    Row("/records/one", records.one),
    Row("/records/whole", records.whole),
    Row("/records/tail", records.tail, "Follow records", in_menu=False),
    Row("/records/new", record_writing.new, "Write a record", in_menu=False),
    Row("/receipts", receipts.listing, "Who was sent a record", in_menu=False),
    Row("/groups", groups.listing, "Groups"),
    Row("/groups/{group:path}", groups.one),
    Row("/resets/new", groups.new_reset, "Reset a group", in_menu=False),
    Row("/resets/check", groups.check_reset),
    Row("/moves", moves.listing, "Moves"),
    Row("/moves/check", moves.check),
    Row("/moves/{move}", moves.one),
    Row("/rules", rules.listing, "Rules"),
    Row("/rules/new", rules.new, "New rule", in_menu=False),
    Row("/rules/check", rules.check),
    Row("/rules/{rule}", rules.one),
    Row("/explain", rules.explain, "Explain", in_menu=False),
    Row("/changes/{revision}", changes.landing),
    Row("/changes/{revision}/undo", changes.undo),
    Row("/changes/{revision}/take-back", taking_back.check),
    Row("/history", past.history, "History"),
    Row("/history/as-of", past.as_of, "The mesh at a moment", in_menu=False),
    Row("/history/diff", past.diff, "Compare two revisions", in_menu=False),
    Row("/audit", past.calls, "Audit"),
    Row("/audit/records", past.records, "Audit of records", in_menu=False),
    Row("/acls", people.acl_list, "ACLs"),
    Row("/acls/explain", people.acl_explain, "May a client do this?", in_menu=False),
    Row("/acls/check", policies.acl_check),
    Row("/acls/mode/check", policies.mode_check),
    Row("/quotas", quotas.listing, "Quotas"),
    Row("/quotas/check", quotas.check),
    Row("/users", people.user_list, "Users"),
    Row("/users/{name:path}", people.user),
    Row("/grants", people.grant_list, "Grants"),
    Row("/grants/explain", people.grant_explain, "May a person do this?", in_menu=False),
    Row("/grants/check", policies.grant_check),
    Row("/record-rules", record_rules.listing, "Record rules"),
    Row("/record-rules/{name}", record_rules.one),
    Row("/replays", replaying.listing, "Replays"),
    Row("/replays/{name}", replaying.one),
    Row("/dead-letters", dead_letters.listing, "Dead letters"),
    Row("/dead-letters/{topic}", dead_letters.one),
    Row("/dead-letters/{topic}/redrive", dead_letters.new),
    Row("/transactions", transactions.listing, "Transactions"),
    Row("/transactions/{name:path}", transactions.one),
    Row("/sidecars", sidecars.listing, "Sidecars"),
    Row("/sidecars/{name}", sidecars.one),
    Row("/instances/{name}", sidecars.instance),
    Row("/subscriptions", subscriptions.listing, "Subscriptions"),
    Row("/subscriptions/{subscription}", subscriptions.one),
    Row("/orders", sidecars.orders, "Orders", in_menu=False),
    Row("/clients", clients.listing, "Clients"),
    Row("/traffic", traffic.page, "Traffic"),
    Row("/pipelines", pipelines.jobs, "Pipelines"),
    Row("/schedules", schedules.listing, "Schedules"),
    Row("/schedules/{name}", schedules.one),
)
CHANGES = (
    Row("/records/send", record_writing.send),
    Row("/rules/change", rules.make),
    Row("/resets/start", groups.reset),
    Row("/topics/{topic}/owner", topics.own),
    Row("/moves/start", moves.start),
    Row("/moves/{move}/cancel", moves.cancel),
    Row("/changes/{revision}/undo", changes.undone),
    Row("/changes/{revision}/take-back", taking_back.make),
    Row("/acls/change", policies.acl_change),
    Row("/acls/mode/change", policies.mode_change),
    Row("/quotas/change", quotas.make),
    Row("/grants/change", policies.grant_change),
    Row("/users/{name:path}/delete", policies.user_delete),
    Row("/users/{name:path}/restore", policies.user_restore),
    Row("/subscriptions/{subscription}/withdraw", subscriptions.withdraw),
    Row("/record-rules/{name}/pause", record_rules.pause),
    Row("/record-rules/{name}/resume", record_rules.resume),
    Row("/dead-letters/plan", dead_letters.plan),
    Row("/dead-letters/redrive", dead_letters.redrive),
    Row("/replays/{name}/cancel", replaying.cancel),
    Row("/transactions/{name:path}/finish", transactions.finish),
    Row("/transactions/{name:path}/abort", transactions.abort),
    Row("/instances/{name}/{verb}", sidecars.order),
    Row("/schedules/{name}/cancel", schedules.cancel),
    Row("/freeze", schedules.freeze),
    Row("/thaw", schedules.thaw),
)
"""By POST."""
