"""The command `kafka-mesh`: the embedded mesh, each service in the foreground, and plain Kafka clients.

Commands are imported when they are called: a container that runs one service, or a health check, loads only that.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

SERVICE_COMMANDS = {
    "control": ("services.control.__main__", "Run the control plane."),
    "router": ("services.router.__main__", "Run a router."),
    "gateway": ("services.gateway.__main__", "Run a gateway."),
    "sidecar": ("services.sidecar.__main__", "Run a sidecar."),
    "console": ("services.console.__main__", "Run the console: pages about the mesh."),
    "migrate": ("services.control.store.migrate", "Bring control's database to the newest schema."),
    "verify-log": ("services.control.verify_log", "Recompute from control's log what is stored, and compare."),
    "restore-log": ("services.control.restore_log", "Give a new or older database the events of mesh.events."),
}
CLIENT_COMMANDS = {
    "produce": "local.clients:produce",
    "consume": "local.clients:consume",
    "load": "local.load:load",
    "judge": "judge.cli:judge",
}
CLIENT_HELP = {
    "produce": "Send lines to a topic.",
    "consume": "Print records of a topic as lines.",
    "load": "Send records at a bounded rate, with live figures.",
    "judge": "Judge any Kafka endpoint: which anomalies do clients see?",
}
# The program behind the command reads its own arguments (--config FILE, --help).
PASSES_ALL = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


class LazyGroup(click.Group):
    """A group that imports its client commands from other modules when somebody calls them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *CLIENT_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if place := CLIENT_COMMANDS.get(cmd_name):
            module, _, attribute = place.partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        eager = {name: command.get_short_help_str(80) for name, command in self.commands.items() if not command.hidden}
        with formatter.section("Commands"):
            formatter.write_dl(list({**eager, **CLIENT_HELP}.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-mesh")
def main() -> None:
    """One address in front of real Kafka clusters."""


@main.command("up")
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=HOST:PORT,...",
    help="A real cluster instead of the embedded ones; the first one is the mesh's home.",
)
@click.option("--database", metavar="URL", default="", help="A real PostgreSQL instead of the embedded one.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Where state and logs live.  [default: .kafka-mesh]")
@click.option("--port-base", type=click.IntRange(1024, 65000), help="All ports in a row from this one.")
@click.option("--port", "ports", multiple=True, metavar="NAME=PORT", help="One port, for example gateway=29092.")
@click.option("--gateways", type=click.IntRange(1, 8), default=1, help="How many gateways.")
@click.option("--routers", type=click.IntRange(1, 8), default=1, help="How many routers.")
@click.option("--example/--no-example", default=True, help="Beside the clusters: rules and topics.")
@click.option("--pipeline/--no-pipeline", default=None, help="Run the Spark jobs.  [default: where Spark can run]")
def up_command(
    clusters: tuple[str, ...],
    database: str,
    state_dir: Path | None,
    port_base: int | None,
    ports: tuple[str, ...],
    gateways: int,
    routers: int,
    example: bool,
    pipeline: bool | None,
) -> None:
    """Start a whole mesh on this machine; Ctrl-C stops it."""
    from local.layout import Layout, LayoutError, parse_clusters, parse_database, parse_ports
    from local.spark import why_not
    from local.up import up

    no_pipeline = why_not() if pipeline is not False else "as asked"
    if pipeline and no_pipeline:
        raise click.UsageError(f"--pipeline: {no_pipeline}")
    replicas = {"gateway": gateways, "router": routers}
    try:
        layout = Layout(
            state=(state_dir or default_state_folder()).resolve(),
            ports=parse_ports(port_base, ports, replicas),
            clusters=parse_clusters(clusters),
            database=parse_database(database),
            example=example,
            pipeline=not no_pipeline,
            replicas=replicas,
        )
    except LayoutError as error:
        raise click.UsageError(str(error)) from error
    sys.exit(up(layout, no_pipeline="" if pipeline is False else no_pipeline))


@main.command("stop")
@click.argument("service")
@click.option("--state-dir", type=click.Path(path_type=Path), help="The mesh's state folder.")
def stop_command(service: str, state_dir: Path | None) -> None:
    """Take one service of the running mesh down, to see what goes on without it."""
    from local.supervisor import DOWN_FOLDER

    mark = _known_service(service, state_dir) / DOWN_FOLDER / service
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


@main.command("start")
@click.argument("service")
@click.option("--state-dir", type=click.Path(path_type=Path), help="The mesh's state folder.")
def start_command(service: str, state_dir: Path | None) -> None:
    """Bring a service back that `stop` took down."""
    from local.supervisor import DOWN_FOLDER

    (_known_service(service, state_dir) / DOWN_FOLDER / service).unlink(missing_ok=True)


def _known_service(service: str, state_dir: Path | None) -> Path:
    from local.supervisor import StateError, running_services

    state = (state_dir or default_state_folder()).resolve()
    try:
        known = running_services(state)
    except StateError as error:
        raise click.UsageError(str(error)) from error
    if service not in known:
        raise click.UsageError(f"no service is called {service!r} (known: {', '.join(known)})")
    return state


@main.command("certificates")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    envvar="KAFKA_MESH_CERTIFICATES_FOLDER",
    help="Where the authority and the folders of owners are.  [default: certificates in the state folder]",
)
@click.argument("owners", nargs=-1, required=True, metavar="OWNER...", envvar="KAFKA_MESH_CERTIFICATES_OWNERS")
def certificates_command(folder: Path | None, owners: tuple[str, ...]) -> None:
    """Sign certificates for members and people of the mesh on this machine.

    OWNER is [FOLDER=]ROLE/NAME[@HOST,HOST...], for example sidecar/shop or viewer/ada.
    """
    from local.certificates import write_certificates
    from local.owners import OwnerError, parse_owner

    state = default_state_folder()
    if folder is None and not state.is_dir():
        raise click.UsageError(f"no mesh has its state in {state}: start one, or give the --folder of an authority")
    place = folder or state / "certificates"
    try:
        known = [parse_owner(owner) for owner in owners]
    except OwnerError as error:
        raise click.UsageError(str(error)) from error
    try:
        signed = write_certificates(place, known)
    except OSError as error:
        raise click.ClickException(f"{error.filename or place}: {error.strerror or error}") from error
    for owner in known:
        outcome = "signed" if owner in signed else "still good"
        click.echo(f"{owner.role} {owner.name}: {outcome}, in {place / owner.folder}")


@main.command("health")
@click.argument("target")
def health_command(target: str) -> None:
    """Exit with 0 when TARGET is ready: a service's name, or http://, kafka://, tcp://."""
    from local.health import condition

    try:
        unmet = condition(target).unmet()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if unmet:
        click.echo(unmet, err=True)
        sys.exit(1)


def default_state_folder() -> Path:
    """KAFKA_MESH_STATE_DIR, else `.kafka-mesh` here."""
    return Path(os.environ.get("KAFKA_MESH_STATE_DIR") or ".kafka-mesh")


@main.command("pipeline", context_settings=PASSES_ALL, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def pipeline_command(arguments: tuple[str, ...]) -> None:
    """Run a Spark job (needs the extra `pipeline`)."""
    from local.gateway_address import BOOTSTRAP_VARIABLE
    from meshctl.endpoints import EndpointsError, Service, find
    from meshctl.session import ADDRESS_VARIABLE

    try:
        gateway = find(Service.GATEWAY, option=None, variable=BOOTSTRAP_VARIABLE)
        control = find(Service.CONTROL, option=None, variable=ADDRESS_VARIABLE)
    except EndpointsError as error:
        raise click.UsageError(str(error)) from error
    entry: Any = importlib.import_module("services.pipeline.__main__")
    tls_folder = control.certificates and control.certificates / "pipeline"
    entry.main([*arguments], gateway=gateway.address, control=control.address, tls_folder=tls_folder)


def _add_service(name: str, module: str, help_text: str) -> None:
    @main.command(name, help=help_text, context_settings=PASSES_ALL, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run(arguments: tuple[str, ...]) -> None:
        sys.argv = [f"kafka-mesh {name}", *arguments]
        entry: Any = importlib.import_module(module)
        sys.exit(entry.main())


for _name, (_module, _help) in SERVICE_COMMANDS.items():
    _add_service(_name, _module, _help)

if __name__ == "__main__":
    main()
