"""`meshctl dashboard`: the console in a browser."""

from __future__ import annotations

import os

import click

from meshctl.endpoints import EndpointsError, Service, find
from meshctl.failures import ExitCode, MeshctlError

URL_VARIABLE = "MESHCTL_CONSOLE_URL"


@click.command()
@click.option("--url", metavar="URL", help=f"The console of another mesh; {URL_VARIABLE} does the same.")
@click.option("--no-open", is_flag=True, help="Print the address, and open nothing.")
def dashboard(url: str | None, no_open: bool) -> None:
    """Print the address of the console, and open the console in a browser. Finds the console of the local mesh by
    itself.
    """
    address = url or os.environ.get(URL_VARIABLE)
    if not address:
        try:
            address = f"http://{find(Service.CONSOLE, option=None, variable='').address}/"
        except EndpointsError as error:
            raise MeshctlError(str(error), ExitCode.BAD_REQUEST) from error
    click.echo(address)
    if not no_open:
        click.launch(address)
