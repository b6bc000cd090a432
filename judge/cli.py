"""`kafka-mesh judge`: a verdict on any Kafka endpoint."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from judge.anomalies import judged
from judge.history import read
from judge.plan import Client, Dose, planned
from judge.protocol.connection import address
from judge.replay.command import WithSubcommands
from judge.report import Report
from judge.run import Run
from judge.systems.jvm import can_compile, command
from judge.systems.shape import Shape
from judge.systems.system import System

BY_SEED = "by default the seed chooses."
DEFAULT = "own, librdkafka, and java where there is a compiler"


@click.command("judge", cls=WithSubcommands)
@click.argument("bootstrap", default="")
@click.option("--against", metavar="HOST:PORT,...", default="", help="The same as BOOTSTRAP, for a baseline.")
@click.option("--mesh", "with_mesh", is_flag=True, help="Start a mesh of two clusters, and disturb all its parts.")
@click.option("--gateways", type=click.IntRange(1, 8), default=None, help=f"With --mesh; {BY_SEED}")
@click.option("--workers", type=click.IntRange(1, 8), default=None, help=f"Of each gateway; {BY_SEED}")
@click.option("--routers", type=click.IntRange(1, 8), default=None, help=f"With --mesh; {BY_SEED}")
@click.option("--brokers", type=click.Choice(["1", "3"]), default=None, help=f"Of the second cluster; {BY_SEED}")
@click.option("--ports", metavar="FIRST-LAST", default="20000-32000", show_default=True, help="With --mesh.")
@click.option("--calm", is_flag=True, help="No faults: neither in the system nor on the judge's own connections.")
@click.option("--only", metavar="EXPRESSION", default="", help="Only faults whose names it is found in.")
@click.option("--lanes", type=click.IntRange(1, 8), default=2, show_default=True, help="Faults at a time.")
@click.option("--moves/--no-moves", default=True, help="With --mesh: topics move meanwhile.")
@click.option("--late", is_flag=True, help="Writes of aborted transactions arrive late (KIP-890).")
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=60, show_default=True)
@click.option("--seed", type=int, default=None, help="Of an earlier run, to repeat its choices.  [default: a new one]")
@click.option("--client", "clients", multiple=True, type=click.Choice([*Client]), help=f"[default: {DEFAULT}]")
@click.option("--report", "folder", type=click.Path(path_type=Path), default=Path("build/judge"), show_default=True)
@click.option("--again", type=click.Path(exists=True, path_type=Path), help="Only check the history of an earlier run.")
def judge(
    bootstrap: str,
    against: str,
    with_mesh: bool,
    gateways: int | None,
    workers: int | None,
    routers: int | None,
    brokers: str | None,
    ports: str,
    calm: bool,
    only: str,
    lanes: int,
    moves: bool,
    late: bool,
    seconds: float,
    seed: int | None,
    clients: tuple[str, ...],
    folder: Path,
    again: Path | None,
) -> None:
    """Drive a Kafka endpoint with unique values, disturb it, and tell which anomalies clients saw.

    Ends with 1 if there is an anomaly that Kafka rules out.
    """
    where = bootstrap or against
    if sum((bool(bootstrap), bool(against), with_mesh, again is not None)) != 1:
        raise click.UsageError("say what to judge: BOOTSTRAP, --against BOOTSTRAP, --mesh, or --again HISTORY")
    if again is not None:
        history = read(again)
    else:
        chosen = random.randrange(2**31) if seed is None else seed
        print(f"seed {chosen}: repeat the run's choices with --seed {chosen}", flush=True)
        system = System(where, tuple(map(address, where.split(","))) if where else ())
        with ExitStack() as stack:
            if with_mesh:
                from judge.systems.mesh import embedded_mesh

                shape = Shape.chosen(chosen, gateways, workers, routers, int(brokers) if brokers else None)
                system = stack.enter_context(embedded_mesh(folder / "mesh", shape, calm=calm, moves=moves, ports=ports))
            wanted = [Client(each) for each in clients] or [Client.OWN, Client.LIBRDKAFKA, Client.JAVA]
            if not clients and not can_compile():
                wanted.remove(Client.JAVA)
                print("no Java compiler is here: without Kafka's own clients", flush=True)
            plan = planned(
                chosen,
                clients=wanted,
                moves=system.move is not None,
                late=late,
            )
            run = Run(plan, system, seconds, shake=not calm, say=lambda text: print(text, flush=True))
            run.java = command() if Client.JAVA in wanted else ()
            run.dose = Dose(lanes, only)
            history = run.judged_history()
        folder.mkdir(parents=True, exist_ok=True)
        history.write(folder / "history.jsonl")  # the checks of a long run take a while
    report = Report(history, tuple(judged(history)))
    report.write(folder)
    if report.bad:
        print(report.failures())
    print(report.summary())
    print(f"see {folder / 'report.html'}")
    sys.exit(1 if report.bad else 0)
