"""A further gateway of the mesh that asks for a login and enforces ACLs, with a user for each suite.

A user has exactly the ACLs that its suite needs. Clients at the other gateways are `User:ANONYMOUS`, a super user as
long as this gateway serves: they notice nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.clients.entrances import MECHANISM, PROTOCOL, Entrance
from tests.fixtures.meshes import Mesh
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import ServiceProcess

PASSWORD = "a-password"
NAME = "gateway-acls"
TOPICS = ("--topic", "c1-clients", "--topic", "c2-clients", "--pattern", "prefixed")
GROUPS = ("--group", "group-", "--pattern", "prefixed")
OF_MIRRORS = ("--topic", "c2-copy", "--pattern", "prefixed")
OF_STREAMS = ("c1-streams", "--pattern", "prefixed")
"""The names of applications of Kafka Streams, with their groups, transactional ids and internal topics."""
SUITES: Mapping[str, Sequence[Sequence[str]]] = {
    "records": [(*TOPICS, "--operation", "Write", "--operation", "Read"), (*GROUPS, "--operation", "Read")],
    "groups": [(*TOPICS, "--operation", "Write", "--operation", "Read"), (*GROUPS, "--operation", "Read")],
    "transactions": [
        (*TOPICS, "--operation", "Write", "--operation", "Read"),
        (*GROUPS, "--group", "reader-", "--operation", "Read"),
        ("--transactional-id", "id-", "--pattern", "prefixed", "--operation", "Write"),
    ],
    "admin": [
        (
            *(*TOPICS, "--topic", "c1-never-made", "--operation", "Create", "--operation", "Delete"),
            *("--operation", "Alter", "--operation", "AlterConfigs", "--operation", "Write", "--operation", "Read"),
        ),
        (*GROUPS, "--operation", "Read", "--operation", "Delete"),
    ],
    "console_tools": [
        (*TOPICS, "--operation", "All"),
        (*GROUPS, "--group", "perf-consumer", "--group", "console-consumer", "--operation", "All"),
        ("--transactional-id", "perf", "--transactional-id", "open", "--pattern", "prefixed", "--operation", "All"),
        ("--cluster", "--operation", "Describe", "--operation", "DescribeConfigs"),
        ("--cluster", "--operation", "Alter", "--operation", "AlterConfigs"),
    ],
    "measuring_tools": [
        (*TOPICS, "--operation", "Write", "--operation", "Read"),
        (*GROUPS, "--group", "test-group-", "--operation", "Read"),
    ],
    "streams": [
        (*TOPICS, "--operation", "Write", "--operation", "Read"),
        ("--topic", *OF_STREAMS, "--operation", "Create", "--operation", "Delete", "--operation", "DescribeConfigs"),
        ("--topic", *OF_STREAMS, "--operation", "Write", "--operation", "Read"),
        ("--group", *OF_STREAMS, "--operation", "Read"),
        ("--transactional-id", *OF_STREAMS, "--operation", "Write"),
    ],
    "mirror_maker": [
        (*TOPICS, "--operation", "Write", "--operation", "Read", "--operation", "DescribeConfigs"),
        ("--topic", "mm2-", *OF_MIRRORS, *("--operation", "Create"), "--operation", "Write", "--operation", "Read"),
        ("--topic", "mm2-", *OF_MIRRORS, "--operation", "DescribeConfigs", "--operation", "Alter"),
        ("--topic", "mm2-", *OF_MIRRORS, "--operation", "AlterConfigs"),
        ("--group", "mesh-mm2", *("--group", "c2-copy"), "--pattern", "prefixed", "--operation", "Read"),
        ("--cluster", "--operation", "Describe"),
    ],
}
"""The options of `meshctl acl add`, by the module of the suite without its `test_`. The user has the suite's name."""


@contextlib.contextmanager
def secured_gateway(mesh: Mesh, folder: Path) -> Iterator[str]:
    """The address of the gateway. At the end it is away, and the mesh has its users and ACLs no more."""
    password = folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    for suite, needs in SUITES.items():
        mesh.meshctl("users", "set", suite, "--mechanism", MECHANISM, "--password-file", str(password))
        for options in needs:
            mesh.meshctl("acl", "add", "--allow-principal", f"User:{suite}", *options)
    mesh.meshctl("acl", "mode", "enforce", "--super-user", "User:ANONYMOUS")
    port = free_block(2)
    address = f"127.0.0.1:{port}"
    settings = {
        "NAME": NAME,
        "LISTEN": f"{PROTOCOL}://{address}",
        "SASL_MECHANISMS": MECHANISM,
        "USERS_FROM_CONTROL": "true",
        "AUTHORIZATION": "required",
        "ROUTER_ADDRESSES": mesh.router,
        "RPC_TLS_FOLDER": mesh.certificate("gateway", NAME),
        "STATE_DIR": str(folder / "state"),
    }
    gateway = ServiceProcess("gateway", port, folder / "gateway.log", settings)
    gateway.start()
    try:
        wait_until(lambda: gateway.ready() == "ready", f"the gateway is ready, see {gateway.log_file}")
        yield address
    finally:
        gateway.stop()
        mesh.meshctl("acl", "mode", "off", "--no-super-users")
        for suite in SUITES:
            mesh.meshctl("acl", "remove", "--allow-principal", f"User:{suite}", "--yes")
            mesh.meshctl("users", "delete", suite)


def entrance_of(suite: str, address: str) -> str:
    """The bootstrap of the suite's user."""
    return str(Entrance(address, suite, PASSWORD))
