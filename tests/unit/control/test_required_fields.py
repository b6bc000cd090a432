"""A request without a field that the contract requires is refused, and the error says what belongs there."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from mesh.rpc import admin, grants, instances, pipelines, routing, topic_moves
from services.control.api.required import check_required
from services.control.domain.errors import InvalidField

CREATED = admin.CreateRuleRequest(rule=routing.RuleSpec(rule_id="r"))


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (admin.GetClusterRequest(), "name: is required: clusters/{cluster_name}"),
        (admin.UpdateClusterRequest(name="clusters/c1"), "spec: is required"),
        (topic_moves.StartTopicMoveRequest(), "spec: is required"),
        (grants.ExplainAccessRequest(), "principal: is required"),
        (pipelines.ReportJobsRequest(), "pipeline: is required"),
        (
            admin.ChangeRulesRequest(
                edits=[admin.RuleEdit(create=CREATED), admin.RuleEdit(create=admin.CreateRuleRequest())]
            ),
            "edits[1].create.rule: is required",
        ),
    ],
)
def test_a_missing_field_is_named(request_: Message, problem: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_required(request_)
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    "request_",
    [
        admin.GetClusterRequest(name="clusters/c1"),
        admin.UpdateClusterRequest(name="clusters/c1", spec=admin.UpdateClusterRequest().spec),
        admin.ChangeRulesRequest(edits=[admin.RuleEdit(create=CREATED)]),
        instances.ListOrdersRequest(),
    ],
)
def test_a_request_with_all_that_is_required_passes(request_: Message) -> None:
    check_required(request_)
