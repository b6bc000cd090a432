"""Access rights lie where that lives which they are about, are shown once, and are deleted as shown."""

import pytest

from services.gateway.requests.clusters import acls
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.plan import Unreachable
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from services.gateway.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from services.gateway.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World

ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 1, 2, 3, 4, 5, 6, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
READ, ALLOW = 3, 3
BOB = AclDescription("User:bob", "*", READ, ALLOW)
EVE = AclDescription("User:eve", "*", READ, ALLOW)
GRANTED, DELETED = AclCreationResult(0, None), DeleteAclsFilterResult(0, None)
OFF = "No Authorizer is configured"
Resource = tuple[int, str, int]

VERSIONS = pytest.mark.parametrize("version", [0, 1, 2, 3])


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]})


def describing(kind: int, name: str | None = None, pattern: int = LITERAL) -> DescribeAclsRequest:
    return DescribeAclsRequest(kind, name, pattern, None, None, 1, 1)


def described(*resources: tuple[Resource, AclDescription]) -> DescribeAclsResponse:
    return DescribeAclsResponse(resources=[DescribeAclsResource(*resource, [acl]) for resource, acl in resources])


def without_authorizer() -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=OFF)


def granting(*resources: Resource) -> CreateAclsRequest:
    return CreateAclsRequest([AclCreation(*resource, "User:bob", "*", READ, ALLOW) for resource in resources])


def shown(answer: DescribeAclsResponse) -> list[tuple[Resource, str]]:
    return [
        ((r.resource_type, r.resource_name, r.pattern_type), acl.principal) for r in answer.resources for acl in r.acls
    ]


class TestDescribing:
    @VERSIONS
    def test_rights_on_one_topic_are_asked_of_its_owner(self, world: World, version: int) -> None:
        book = Playbook(acls.handle_describe, describing(TOPIC, "bananas"), version, world.view())
        [call] = book.asked()
        assert (call.cluster, call.message) == ("c2", describing(TOPIC, "bananas"))
        book.answered(described(((TOPIC, "bananas", LITERAL), BOB)))
        assert shown(book.answer) == [((TOPIC, "bananas", LITERAL), "User:bob")]

    def test_a_topic_without_a_rule_has_none(self, world: World) -> None:
        answer = Playbook(acls.handle_describe, describing(TOPIC, "cherries"), 3, world.view()).answer
        assert answer == DescribeAclsResponse(error_message=None)

    @pytest.mark.parametrize(
        ("kind", "name", "pattern"),
        [
            (TOPIC, "*", LITERAL),
            (TOPIC, "ban", PREFIXED),
            (TOPIC, "bananas", MATCH),
            (TOPIC, None, LITERAL),
            (ANY, None, LITERAL),
            (GROUP, "g", LITERAL),
            (CLUSTER, "kafka-cluster", LITERAL),
            (TRANSACTIONAL_ID, "tx", LITERAL),
            (TOKEN, "t", LITERAL),
            (USER, "User:bob", LITERAL),
        ],
    )
    def test_everything_else_is_asked_of_all_clusters(self, world: World, kind: int, name: str, pattern: int) -> None:
        book = Playbook(acls.handle_describe, describing(kind, name, pattern), 3, world.view())
        assert [call.cluster for call in book.asked()] == ["c1", "c2"]

    def test_equal_rights_are_shown_once_and_others_together(self, world: World) -> None:
        book = Playbook(acls.handle_describe, describing(GROUP), 3, world.view())
        group = (GROUP, "g", LITERAL)
        book.answered(described((group, BOB)), described((group, BOB), (group, EVE)))
        assert shown(book.answer) == [(group, "User:bob"), (group, "User:eve")]
        assert len(book.answer.resources) == 1

    def test_rights_on_a_topic_are_shown_from_its_owner_alone(self, world: World) -> None:
        book = Playbook(acls.handle_describe, describing(ANY), 3, world.view())
        apples, bananas, beside = ((TOPIC, name, LITERAL) for name in ("apples", "bananas", "cherries"))
        book.answered(described((apples, BOB), (bananas, EVE), (beside, BOB)), described((bananas, BOB)))
        assert shown(book.answer) == [(apples, "User:bob"), (bananas, "User:bob")]

    def test_a_cluster_without_authorizer_has_none_to_show(self, world: World) -> None:
        book = Playbook(acls.handle_describe, describing(GROUP), 3, world.view())
        book.answered(described(((GROUP, "g", LITERAL), BOB)), without_authorizer())
        assert book.answer.error_code == ErrorCode.NONE
        assert shown(book.answer) == [((GROUP, "g", LITERAL), "User:bob")]

    def test_no_authorizer_anywhere_is_said(self, world: World) -> None:
        book = Playbook(acls.handle_describe, describing(GROUP), 3, world.view())
        book.answered(without_authorizer(), without_authorizer())
        assert book.answer.error_code == ErrorCode.SECURITY_DISABLED

    def test_a_cluster_that_does_not_answer_is_named(self, world: World) -> None:
        book = Playbook(acls.handle_describe, describing(GROUP), 3, world.view())
        book.answered(described(), Unreachable("c2", "connection refused"))
        assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "cluster c2 can't be reached: connection refused" in book.answer.error_message

    def test_an_old_client_is_understood_by_new_clusters(self) -> None:
        world = World({"c1": ["apples"]}, upstream_versions={ApiKey.DESCRIBE_ACLS: VersionRange(1, 3)})
        book = Playbook(acls.handle_describe, describing(TOPIC, "apples"), 0, world.view())
        [call] = book.asked()
        assert (call.version, call.message) == (1, describing(TOPIC, "apples"))

    def test_prefixes_are_refused_by_a_cluster_that_knows_none(self) -> None:
        world = World({"c1": ["apples"]}, upstream_versions={ApiKey.DESCRIBE_ACLS: VersionRange(0, 0)})
        answer = Playbook(acls.handle_describe, describing(TOPIC, "app", PREFIXED), 3, world.view()).answer
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "pattern_type_filter" in answer.error_message


class TestGranting:
    @VERSIONS
    def test_rights_on_topics_are_granted_on_owners_and_groups_everywhere(self, world: World, version: int) -> None:
        apples, group, bananas = (TOPIC, "apples", LITERAL), (GROUP, "g", LITERAL), (TOPIC, "bananas", LITERAL)
        book = Playbook(acls.handle_create, granting(apples, group, bananas), version, world.view())
        on_c1, on_c2 = book.asked()
        assert (on_c1.cluster, on_c1.message) == ("c1", granting(apples, group))
        assert (on_c2.cluster, on_c2.message) == ("c2", granting(group, bananas))
        refused = AclCreationResult(ErrorCode.INVALID_REQUEST, "bad")
        book.answered(
            CreateAclsResponse(results=[GRANTED, GRANTED]),
            CreateAclsResponse(results=[GRANTED, refused]),
        )
        named = AclCreationResult(ErrorCode.INVALID_REQUEST, "bad (on c2)")
        assert book.answer.results == [GRANTED, GRANTED, named]

    def test_a_topic_without_a_rule_is_refused_by_name(self, world: World) -> None:
        [result] = Playbook(acls.handle_create, granting((TOPIC, "cherries", LITERAL)), 3, world.view()).answer.results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "no forwarding rule matches topic 'cherries'" in result.error_message

    def test_an_item_that_failed_on_one_cluster_says_where_it_failed_and_where_it_is_done(self, world: World) -> None:
        book = Playbook(acls.handle_create, granting((TOPIC, "app", PREFIXED)), 3, world.view())
        disabled = AclCreationResult(ErrorCode.SECURITY_DISABLED, OFF)
        book.answered(CreateAclsResponse(results=[GRANTED]), CreateAclsResponse(results=[disabled]))
        [result] = book.answer.results
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert result.error_message == f"{OFF} (on c2); done on c1"

    def test_a_cluster_that_does_not_answer_fails_its_items_alone(self, world: World) -> None:
        wanted = granting((TOPIC, "apples", LITERAL), (TOPIC, "bananas", LITERAL))
        book = Playbook(acls.handle_create, wanted, 3, world.view())
        book.answered(Unreachable("c1", "down"), CreateAclsResponse(results=[GRANTED]))
        assert [r.error_code for r in book.answer.results] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]

    def test_a_mesh_without_clusters_says_so(self) -> None:
        [result] = Playbook(acls.handle_create, granting((GROUP, "g", LITERAL)), 3, World({}).view()).answer.results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "no cluster" in result.error_message


class TestDeleting:
    FILTER = DeleteAclsFilter(ANY, None, LITERAL, "User:bob", None, 1, 1)

    @VERSIONS
    def test_what_the_filter_shows_is_deleted_one_by_one_where_it_lies(self, world: World, version: int) -> None:
        book = Playbook(acls.handle_delete, DeleteAclsRequest([self.FILTER]), version, world.view())
        assert [call.cluster for call in book.asked()] == ["c1", "c2"]
        apples, beside, group = (TOPIC, "apples", LITERAL), (TOPIC, "cherries", LITERAL), (GROUP, "g", LITERAL)
        book.answered(described((apples, BOB), (beside, BOB), (group, BOB)), described((apples, BOB), (group, BOB)))
        on_c1, on_c2 = book.asked()
        exact = [DeleteAclsFilter(*resource, "User:bob", "*", READ, ALLOW) for resource in (apples, group)]
        assert (on_c1.cluster, on_c1.message) == ("c1", DeleteAclsRequest(exact))
        assert (on_c2.cluster, on_c2.message) == ("c2", DeleteAclsRequest(exact[1:]))
        done = [DELETED, DELETED]
        book.answered(DeleteAclsResponse(filter_results=done), DeleteAclsResponse(filter_results=done[:1]))
        [result] = book.answer.filter_results
        assert result.error_code == ErrorCode.NONE
        assert result.matching_acls == [
            DeleteAclsMatchingAcl(0, None, *resource, "User:bob", "*", READ, ALLOW) for resource in (apples, group)
        ]

    def test_nothing_that_matches_is_no_error(self, world: World) -> None:
        book = Playbook(acls.handle_delete, DeleteAclsRequest([self.FILTER]), 3, world.view())
        book.answered(described(), without_authorizer())
        assert book.answer.filter_results == [DELETED]

    def test_a_right_that_one_cluster_keeps_says_where(self, world: World) -> None:
        book = Playbook(acls.handle_delete, DeleteAclsRequest([self.FILTER]), 3, world.view())
        group = ((GROUP, "g", LITERAL), BOB)
        book.answered(described(group), described(group))
        book.answered(DeleteAclsResponse(filter_results=[DELETED]), Unreachable("c2", "gone"))
        [[right]] = [result.matching_acls for result in book.answer.filter_results]
        assert right.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert right.error_message == "The request timed out: cluster c2 can't be reached: gone (on c2); done on c1"

    def test_a_cluster_that_does_not_say_what_it_has_is_named_and_the_others_delete(self, world: World) -> None:
        book = Playbook(acls.handle_delete, DeleteAclsRequest([self.FILTER]), 3, world.view())
        book.answered(described(((GROUP, "g", LITERAL), BOB)), Unreachable("c2", "gone"))
        [call] = book.asked()
        assert call.cluster == "c1"
        book.answered(DeleteAclsResponse(filter_results=[DELETED]))
        [result] = book.answer.filter_results
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "c2" in result.error_message
