"""`meshctl users`: the users who log in to gateways by PLAIN or SCRAM.

The verifier is computed here: a password leaves this program in no form, and is never an argument.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import click

from mesh.connection_security import Mechanism
from mesh.rpc import users as pb
from mesh.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_HASHES, Verifier
from mesh.scram_codec import mechanism_word, verifier_to_proto
from meshctl.connection import PAGE_SIZE
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.policy_calls import reason_option
from meshctl.session import Command, Group, Session, pass_session
from meshctl.users_file import UsersFile

PASSWORD_VARIABLE = "MESHCTL_PASSWORD"  # noqa: S105  # the name of a variable, no password
MOST_NAME_CHARACTERS = 255

_file = click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Instead of control: the file of users that gateways read (USERS_FILE).",
)


@click.group(cls=Group)
def users() -> None:
    """Users who log in to gateways with a password (PLAIN, SCRAM): set, delete, restore, list, explain.

    Control and files have no passwords, only verifiers of passwords. Still, keep a file from others: a weak password
    can be guessed by its verifier.
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
@reason_option
@pass_session
def set_(
    session: Session,
    name: str,
    path: Path | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    reason: str,
) -> None:
    """Make the user NAME, or give the user another password.

    The password comes from --password-file, from $MESHCTL_PASSWORD, or from a prompt. Gateways end the connections of a
    user whose password has changed.

    \b
    Examples:
      meshctl users set shop --reason "a new service"
      meshctl users set shop --mechanism SCRAM-SHA-512 --password-file shop.password
      meshctl users set shop --file users.yaml
    """
    if not name or len(name) > MOST_NAME_CHARACTERS or "\0" in name:
        raise click.UsageError(f"NAME has 1 to {MOST_NAME_CHARACTERS} characters")
    file = None if path is None else UsersFile.opened(path)
    password = _password(name, password_file)
    chosen = [Mechanism(each) for each in mechanisms] or list(SCRAM_HASHES)
    verifiers = {each: Verifier.of_password(each, password, iterations) for each in chosen}
    by = ", ".join(each.value for each in chosen)
    if file is not None:
        file.put(name, verifiers)
        click.echo(f"user {name} is in {path} ({by})")
        return
    request = pb.SetUserRequest(
        user=name, verifiers=map(verifier_to_proto, verifiers.values()), reason=reason, request_id=str(uuid.uuid4())
    )
    connection = session.connect()
    answer = connection.call(connection.users.SetUser, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"user {name} logs in by {by} (revision {answer.revision})")


@users.command(cls=Command)
@click.argument("name")
@_file
@reason_option
@pass_session
def delete(session: Session, name: str, path: Path | None, reason: str) -> None:
    """Delete the user NAME. Gateways end the user's connections.

    \b
    Examples:
      meshctl users delete shop --reason "the service is gone"
      meshctl users delete shop --file users.yaml
    """
    if path is not None:
        UsersFile.read(path).delete(name)
        click.echo(f"user {name} is no longer in {path}")
        return
    request = pb.DeleteUserRequest(user=name, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.users.DeleteUser, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"user {name} is deleted (revision {answer.revision})")


@users.command(cls=Command)
@click.argument("name")
@reason_option
@pass_session
def restore(session: Session, name: str, reason: str) -> None:
    """Bring the deleted user NAME back with the password that the user had, within 30 days.

    \b
    Examples:
      meshctl users restore shop
    """
    request = pb.RestoreUserRequest(user=name, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.users.RestoreUser, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"user {name} is back (revision {answer.revision})")


@users.command(cls=Command)
@click.argument("name")
@click.option("--at", "at_revision", type=click.IntRange(min=1), metavar="REVISION", help="As it was then.")
@pass_session
def explain(session: Session, name: str, at_revision: int | None) -> None:
    """Say whether the user NAME can log in, and which decision says so.

    \b
    Examples:
      meshctl users explain shop
    """
    connection = session.connect()
    request = pb.GetUserRequest(user=name, at_revision=at_revision or 0)
    answer = connection.call(connection.users.GetUser, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(answer.explanation)


@users.command(name="list", cls=Command)
@_file
@click.option("--at", "at_revision", type=click.IntRange(min=1), metavar="REVISION", help="As they were then.")
@pass_session
def list_(session: Session, path: Path | None, at_revision: int | None) -> None:
    """List the users with their mechanisms and iterations.

    \b
    Examples:
      meshctl users list
      meshctl users list --file users.yaml
    """
    if path is not None:
        if at_revision is not None:
            raise click.UsageError("--at is about decisions of control, and a file has none")
        _list_file(session, path)
        return
    request = pb.ListUsersRequest(at_revision=at_revision or 0, page_size=PAGE_SIZE)
    connection = session.connect()
    found = [each for page in connection.pages(connection.users.ListUsers, request) for each in page.users]
    if session.as_json:
        print_json({"users": [as_dict(each) for each in found]})
        return
    print_table(
        ("USER", "MECHANISM", "ITERATIONS", "SINCE", "BY", "REASON"),
        (
            (
                each.name, mechanism_word(of.mechanism), str(of.iterations), moment(each.time), each.actor, each.reason,
            )
            for each in found
            for of in each.mechanisms
        ),
        empty="There is no user: meshctl users set NAME",
    )  # fmt: skip


def _list_file(session: Session, path: Path) -> None:
    known = UsersFile.read(path).users.by_name
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
