"""UpdateFeatures: a feature changes on every cluster, or on none, as far as the gateway can know.

The gateway first asks all clusters to validate the change. If one refuses or does not answer, nothing is changed, and
the answer names that cluster. The answer also names a cluster that fails between the validation and the change itself;
the client may send the request again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from services.gateway.requests.clusters.everywhere import ask_everywhere
from services.gateway.requests.plan import Controller, MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import Verdict, joined, silence
from services.gateway.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from services.gateway.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

VALIDATION_SINCE: Final = 1
SAFE_DOWNGRADE: Final = 2
"""org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType; version 0 calls it allow_downgrade."""
TELLS_FEATURES: Final = 4
"""Version of ApiVersions."""

Outcomes = Mapping[str, UpdateFeaturesResponse | Unreachable]


def handle(request: Request, mesh: MeshView) -> Plan:
    message = _modern(request.decode(UpdateFeaturesRequest))
    version = max(VALIDATION_SINCE, request.version)
    trial = replace(message, validate_only=True)
    outcomes: Outcomes = yield from ask_everywhere(mesh, trial, version, UpdateFeaturesResponse, Controller())
    refused = {cluster: verdict for cluster, verdict in _verdicts(outcomes).items() if verdict.code}
    if refused:
        verdict = joined(refused, name_one=len(outcomes) > 1)
        return _answer(message, Verdict(verdict.code, f"{verdict.text}; nothing is changed"))
    if message.validate_only:
        return _answer(message, joined(_verdicts(outcomes)))
    outcomes = yield from ask_everywhere(mesh, message, version, UpdateFeaturesResponse, Controller())
    told = yield from ask_everywhere(
        mesh, ApiVersionsRequest("kafka-mesh", "gateway"), TELLS_FEATURES, ApiVersionsResponse
    )
    for cluster, answer in told.items():
        if isinstance(answer, ApiVersionsResponse) and not answer.error_code:
            mesh.clusters[cluster].learn_features(answer)
    return _answer(message, joined(_verdicts(outcomes)))


def _modern(message: UpdateFeaturesRequest) -> UpdateFeaturesRequest:
    updates = [
        replace(each, allow_downgrade=False, upgrade_type=SAFE_DOWNGRADE) if each.allow_downgrade else each
        for each in message.feature_updates
    ]
    return replace(message, feature_updates=updates)


def _verdicts(outcomes: Outcomes) -> dict[str, Verdict]:
    return {cluster: _verdict_of(outcome) for cluster, outcome in outcomes.items()}


def _verdict_of(outcome: UpdateFeaturesResponse | Unreachable) -> Verdict:
    """The verdict of one cluster: newer clusters give one for all features, older ones one for each."""
    if isinstance(outcome, Unreachable):
        return silence(outcome)
    failed = next((each for each in outcome.results if each.error_code), None)
    if failed is not None and not outcome.error_code:
        return Verdict(failed.error_code, f"{failed.feature}: {failed.error_message}")
    return Verdict(outcome.error_code, outcome.error_message)


def _answer(message: UpdateFeaturesRequest, verdict: Verdict) -> UpdateFeaturesResponse:
    results = [UpdatableFeatureResult(each.feature, *verdict) for each in message.feature_updates]
    return UpdateFeaturesResponse(error_code=verdict.code, error_message=verdict.text, results=results)
