"""Features are switched on all clusters or on none."""

from typing import Any

import pytest

from services.gateway.requests.clusters import update_features
from services.gateway.requests.plan import Call, Controller, Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from services.gateway.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World

FEATURE = "transaction.version"
SAFE_DOWNGRADE = 2
YES = UpdateFeaturesResponse(error_message=None)
VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])


@pytest.fixture
def world() -> World:
    return World({"c1": [], "c2": []})


def raising(*, validate_only: bool = False, **fields: Any) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(1000, [FeatureUpdateKey(FEATURE, 2, **fields)], validate_only)


def asking(world: World, version: int, message: UpdateFeaturesRequest) -> Playbook:
    return Playbook(update_features.handle, message, version, world.view())


def messages(calls: tuple[Call, ...]) -> list[tuple[str, object]]:
    assert {call.target for call in calls} == {Controller()}
    return [(call.cluster, call.message) for call in calls]


@VERSIONS
def test_all_clusters_agree_before_any_is_changed(world: World, version: int) -> None:
    book = asking(world, version, raising())
    assert messages(book.asked()) == [(name, raising(validate_only=True)) for name in ("c1", "c2")]
    book.answered(YES, YES)
    assert messages(book.asked()) == [(name, raising()) for name in ("c1", "c2")]
    book.answered(YES, YES)
    assert all(isinstance(call.message, ApiVersionsRequest) for call in book.asked())
    told = ApiVersionsResponse(finalized_features_epoch=1, finalized_features=[FinalizedFeatureKey(FEATURE, 2, 2)])
    book.answered(told, Unreachable("c2", "down"))
    assert book.answer.error_code == ErrorCode.NONE
    assert book.answer.results == [UpdatableFeatureResult(FEATURE, 0, None)]
    assert world.clusters["c1"].finalized_features == {FEATURE: 2}


@VERSIONS
def test_nothing_is_changed_if_one_refuses(world: World, version: int) -> None:
    book = asking(world, version, raising())
    book.answered(YES, UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="too new"))
    assert book.answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert book.answer.error_message == "too new (on c2); nothing is changed"


def test_a_refusal_of_a_single_feature_counts_too(world: World) -> None:
    result = UpdatableFeatureResult(FEATURE, ErrorCode.INVALID_UPDATE_VERSION, "too new")
    book = asking(world, 1, raising())
    book.answered(YES, UpdateFeaturesResponse(error_message=None, results=[result]))
    assert f"{FEATURE}: too new (on c2)" in book.answer.error_message


def test_a_question_changes_nothing(world: World) -> None:
    book = asking(world, 2, raising(validate_only=True))
    book.answered(YES, YES)
    assert book.answer.error_code == ErrorCode.NONE


def test_a_cluster_that_fails_in_the_middle_is_named(world: World) -> None:
    book = asking(world, 2, raising())
    book.answered(YES, YES)
    book.answered(YES, Unreachable("c2", "gone"))
    book.all_unreachable()
    assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert book.answer.error_message == "The request timed out: cluster c2 can't be reached: gone (on c2); done on c1"


def test_the_oldest_way_to_allow_a_downgrade_is_understood(world: World) -> None:
    book = asking(world, 0, raising(allow_downgrade=True))
    [call, _] = book.asked()
    assert call.message == raising(validate_only=True, upgrade_type=SAFE_DOWNGRADE)
    assert call.version == 1
