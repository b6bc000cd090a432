"""How the outcome of a change of the rules is shown."""

from __future__ import annotations

import click

from mesh.rpc import admin
from meshctl import wording
from meshctl.output import print_table


def show_change(answer: admin.RuleChangeResponse, *, dry_run: bool) -> None:
    """Rules, moves, what they mean for readers, and what came of it all."""
    *lines, outcome = wording.change_lines(answer, dry_run=dry_run)
    for line in lines:
        click.echo(line)
    if answer.effects:
        print_table(
            ("TOPIC", "GROUP", "WHAT HAPPENS", "PARTITION", "POSITION", "NEW LOG"),
            (
                (each.topic, each.group, wording.effect(each), each.partition, each.position, wording.new_log(each))
                if each.group
                else (each.topic, "", wording.effect(each), "", "", "")
                for each in answer.effects
            ),
            empty="",
        )
    if dry_run and any(each.kind == admin.MOVE_EFFECT_KIND_SILENT_SKIP for each in answer.effects):
        click.echo("warning: groups would silently skip records; the change is refused without --accept-skip")
    click.echo(outcome)
