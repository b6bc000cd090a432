"""A SCRAM user is the same on every cluster."""

import pytest
from structlog.testing import capture_logs

from mesh.connection_security import Mechanism
from mesh.rpc import kafka_changes, users
from mesh.scram import Verifier, salted_password
from mesh.scram_codec import verifier_from_proto
from services.gateway.authentication.principal import NOBODY, Principal
from services.gateway.requests.clusters import scram_users
from services.gateway.requests.plan import Controller, NotChanged, Unreachable
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from services.gateway.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from tests.unit.gateway.requests.playbook import Playbook, World

SHA_256, SHA_512 = 1, 2
NOT_FOUND = ErrorCode.RESOURCE_NOT_FOUND
CHANGE = AlterUserScramCredentialsRequest(
    [ScramCredentialDeletion("eve", SHA_256)], [ScramCredentialUpsertion("bob", SHA_512, 4096, b"salt", b"password")]
)


@pytest.fixture
def world() -> World:
    return World({"c1": [], "c2": []})


def described(**users: tuple[int, dict[int, int]]) -> DescribeUserScramCredentialsResponse:
    results = [
        DescribeUserScramCredentialsResult(user, code, None, [CredentialInfo(*info) for info in infos.items()])
        for user, (code, infos) in users.items()
    ]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def altered(**codes: int) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user, code, None) for user, code in codes.items()]
    )


def asking(world: World) -> Playbook:
    return Playbook(scram_users.handle_describe, DescribeUserScramCredentialsRequest(None), 0, world.view())


def test_a_user_of_all_clusters_is_shown_once(world: World) -> None:
    book = asking(world)
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    with capture_logs() as logs:
        book.answered(described(bob=(0, {SHA_256: 4096})), described(bob=(0, {SHA_256: 4096})))
    assert book.answer == described(bob=(0, {SHA_256: 4096}))
    assert not logs


def test_credentials_that_differ_are_shown_as_the_home_cluster_has_them_and_logged(world: World) -> None:
    book = asking(world)
    with capture_logs() as logs:
        book.answered(described(bob=(0, {SHA_256: 4096})), described(bob=(0, {SHA_256: 8192, SHA_512: 4096})))
    assert book.answer == described(bob=(0, {SHA_256: 4096, SHA_512: 4096}))
    assert [entry["iterations"] for entry in logs] == [{"c1": 4096, "c2": 8192}, {"c2": 4096}]


def test_a_user_is_unknown_only_if_no_cluster_knows_it(world: World) -> None:
    book = asking(world)
    book.answered(
        described(bob=(NOT_FOUND, {}), eve=(NOT_FOUND, {})), described(bob=(0, {SHA_256: 4096}), eve=(NOT_FOUND, {}))
    )
    assert [(r.user, r.error_code) for r in book.answer.results] == [("bob", 0), ("eve", NOT_FOUND)]


def test_a_cluster_that_does_not_tell_is_named(world: World) -> None:
    book = asking(world)
    book.answered(described(), Unreachable("c2", "down"))
    assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "c2" in book.answer.error_message


def test_users_are_changed_on_every_cluster_by_its_controller(world: World) -> None:
    book = Playbook(scram_users.handle_alter, CHANGE, 0, world.view())
    assert [(call.cluster, call.target, call.message) for call in book.asked()] == [
        ("c1", Controller(), CHANGE),
        ("c2", Controller(), CHANGE),
    ]
    book.answered(altered(bob=0, eve=0), altered(bob=ErrorCode.UNACCEPTABLE_CREDENTIAL, eve=0))
    told = {r.user: (r.error_code, r.error_message) for r in book.answer.results}
    assert told == {
        "eve": (0, None),
        "bob": (
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{words_of(ErrorCode.UNACCEPTABLE_CREDENTIAL)} (on c2); done on c1",
        ),
    }


@pytest.mark.parametrize(("on_c2", "told"), [(0, 0), (NOT_FOUND, NOT_FOUND)])
def test_a_user_that_one_cluster_lacks_is_deleted_where_it_is(world: World, on_c2: int, told: int) -> None:
    book = Playbook(scram_users.handle_alter, CHANGE, 0, world.view())
    book.answered(altered(bob=0, eve=NOT_FOUND), altered(bob=0, eve=on_c2))
    assert {r.user: r.error_code for r in book.answer.results}["eve"] == told


# --- users of control -------------------------------------------------------------------------------------------------

VERIFIERS = {
    each: Verifier(each, b"salt", iterations, b"k" * size, b"k" * size)
    for each, iterations, size in ((Mechanism.SCRAM_SHA_512, 8192, 64), (Mechanism.SCRAM_SHA_256, 4096, 32))
}


@pytest.fixture
def own(world: World) -> World:
    """The gateway has the users of control, and ann has logged in."""
    sha_512 = Mechanism.SCRAM_SHA_512
    world.memory.own_users = lambda: {"shop": VERIFIERS, "till": {sha_512: VERIFIERS[sha_512]}}
    world.session.prove(Principal("ann", "PLAIN"))
    return world


def own_answer(own: World, *names: str) -> DescribeUserScramCredentialsResponse:
    message = DescribeUserScramCredentialsRequest([UserName(name) for name in names] or None)
    book = Playbook(scram_users.handle_describe, message, 0, own.view())
    assert isinstance(book.answer, DescribeUserScramCredentialsResponse), "no cluster is asked"
    return book.answer


def test_users_of_control_are_shown_without_a_question_to_clusters(own: World) -> None:
    both, one = {SHA_256: 4096, SHA_512: 8192}, {SHA_512: 8192}
    assert own_answer(own) == described(shop=(0, both), till=(0, one))
    assert own_answer(own, "till") == described(till=(0, one))


def test_users_whom_control_does_not_know_and_repeated_users_are_told_as_brokers_do(own: World) -> None:
    answer = own_answer(own, "eve", "till", "shop", "till")
    assert [(each.user, each.error_code, each.error_message) for each in answer.results] == [
        ("eve", NOT_FOUND, "Attempt to describe a user credential that does not exist: eve"),
        (
            "till",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: till",
        ),
        ("shop", 0, None),
    ]


def test_a_client_that_has_proved_nothing_hears_of_no_user(own: World) -> None:
    own.session.prove(NOBODY)
    answer = own_answer(own)
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_before_users_of_control_have_come_the_client_tries_again(own: World) -> None:
    own.memory.own_users = lambda: None
    answer = own_answer(own)
    assert (answer.error_code, answer.results) == (ErrorCode.REQUEST_TIMED_OUT, [])


def test_control_changes_a_mechanism_and_the_other_one_stays(own: World) -> None:
    salted = salted_password(Mechanism.SCRAM_SHA_256, "secret", b"salt", 4096)
    upsertion = ScramCredentialUpsertion("till", SHA_256, 4096, b"salt", salted)
    message = AlterUserScramCredentialsRequest([], [upsertion])
    with capture_logs() as logs:
        book = Playbook(scram_users.handle_alter, message, 0, own.view())
        wanted = book.changes()
        assert (wanted.principal, wanted.set_user.user) == ("User:ann", "till")
        verifiers = [verifier_from_proto(each) for each in wanted.set_user.verifiers]
        assert verifiers[0] == VERIFIERS[Mechanism.SCRAM_SHA_512]
        assert verifiers[1].is_of("secret")
        book.decided(kafka_changes.KafkaChangeResponse(set_user=users.SetUserResponse(revision=7)))
    assert [(each.user, each.error_code) for each in book.answer.results] == [("till", 0)]
    assert not logs


def test_a_user_without_mechanisms_is_deleted(own: World) -> None:
    message = AlterUserScramCredentialsRequest([ScramCredentialDeletion("till", SHA_512)], [])
    book = Playbook(scram_users.handle_alter, message, 0, own.view())
    assert book.changes().delete_user.user == "till"
    book.decided(NotChanged("PERMISSION_DENIED", "no ACL of the mesh allows it"))
    [result] = book.answer.results
    assert (result.error_code, result.user) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "till")
    assert "no ACL of the mesh allows it" in result.error_message


@pytest.mark.parametrize(
    ("deletions", "upsertions", "code"),
    [
        ([ScramCredentialDeletion("till", SHA_256)], [], NOT_FOUND),
        ([ScramCredentialDeletion("till", 9)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([ScramCredentialDeletion("till", SHA_512)] * 2, [], ErrorCode.DUPLICATE_RESOURCE),
        ([], [ScramCredentialUpsertion("till", SHA_512, 1, b"s", b"p")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_change_that_brokers_would_refuse_does_not_reach_control(
    own: World,
    deletions: list[ScramCredentialDeletion],
    upsertions: list[ScramCredentialUpsertion],
    code: ErrorCode,
) -> None:
    message = AlterUserScramCredentialsRequest(deletions, upsertions)
    answer = Playbook(scram_users.handle_alter, message, 0, own.view()).answer
    assert [each.error_code for each in answer.results] == [code]
