"""`meshctl users`: the users who log in to gateways by PLAIN or SCRAM.

The verifier is computed here: a password leaves this program in no form, and is never an argument.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from mesh.connection_security import Mechanism
from mesh.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_HASHES, Verifier
from mesh.user_files import Users, UsersFileError, read_users, written
from mesh.whole_files import replace_file
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import print_json, print_table
from meshctl.session import Command, Group, Session, pass_session

PASSWORD_VARIABLE = "MESHCTL_PASSWORD"  # noqa: S105  # the name of a variable, no password
MOST_NAME_CHARACTERS = 255

_file = click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file of users that gateways read (USERS_FILE).",
)


@click.group(cls=Group)
def users() -> None:
    """Users who log in to gateways with a password (PLAIN, SCRAM).

    The file has no passwords, only verifiers of passwords. Still, keep the file from others: a weak password can be
    guessed by its verifier.
    """


@users.command(name="set", cls=Command)
@click.argument("name")
@_file
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice([each.value for each in SCRAM_HASHES]),
    multiple=True,
    help="May be given several times; both by default.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="More make guesses slower, and log-ins too.",
)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the password; a newline at its end does not count.",
)
def set_(name: str, path: Path, mechanisms: tuple[str, ...], iterations: int, password_file: Path | None) -> None:
    """Make the user NAME, or give the user another password.

    The password comes from --password-file, from $MESHCTL_PASSWORD, or from a prompt. Gateways end the connections of a
    user whose password has changed.

    \b
    Examples:
      meshctl users set shop --file users.yaml
      meshctl users set shop --file users.yaml --mechanism SCRAM-SHA-512 --password-file shop.password
    """
    if not name or len(name) > MOST_NAME_CHARACTERS or "\0" in name:
        raise click.UsageError(f"NAME has 1 to {MOST_NAME_CHARACTERS} characters")
    known = _read(path) if path.exists() else Users()
    password = _password(name, password_file)
    chosen = [Mechanism(each) for each in mechanisms] or list(SCRAM_HASHES)
    verifiers = {each: Verifier.of_password(each, password, iterations) for each in chosen}
    _write(path, replace(known, by_name={**known.by_name, name: verifiers}))
    click.echo(f"user {name} is in {path} ({', '.join(each.value for each in chosen)})")


@users.command(cls=Command)
@click.argument("name")
@_file
def delete(name: str, path: Path) -> None:
    """Delete the user NAME. Gateways end the user's connections."""
    known = _read(path)
    if name not in known.by_name:
        raise MeshctlError(f"there is no user {name} in {path}", ExitCode.NOT_FOUND)
    _write(path, replace(known, by_name={each: found for each, found in known.by_name.items() if each != name}))
    click.echo(f"user {name} is no longer in {path}")


@users.command(name="list", cls=Command)
@_file
@pass_session
def list_(session: Session, path: Path) -> None:
    """List the users with their mechanisms and iterations."""
    known = _read(path).by_name
    if session.as_json:
        shown = {
            name: {each.value: {"iterations": verifier.iterations} for each, verifier in found.items()}
            for name, found in sorted(known.items())
        }
        print_json({"users": shown})
        return
    print_table(
        ("USER", "MECHANISM", "ITERATIONS"),
        (
            (name, each.value, str(verifier.iterations))
            for name, found in sorted(known.items())
            for each, verifier in found.items()
        ),
        empty=f"There is no user in {path}: meshctl users set NAME --file {path}",
    )


def _password(name: str, file: Path | None) -> str:
    if file is not None:
        try:
            password = file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise MeshctlError(f"{file} can't be read: {type(error).__name__}", ExitCode.BAD_REQUEST) from None
    else:
        password = os.environ.get(PASSWORD_VARIABLE) or click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True
        )
    if not password:
        raise click.UsageError("the password is empty")
    return password


def _read(path: Path) -> Users:
    try:
        return read_users(path)
    except UsersFileError as error:
        raise MeshctlError(str(error), ExitCode.BAD_REQUEST) from None


def _write(path: Path, known: Users) -> None:
    try:
        replace_file(path, written(known))
    except OSError as error:
        raise MeshctlError(f"{path} can't be written: {error.strerror}", ExitCode.BAD_REQUEST) from None
