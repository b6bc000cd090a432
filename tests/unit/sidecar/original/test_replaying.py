"""The original's topic of commands to replay, in our words."""

from pathlib import Path
from typing import Any

import pytest

from services.sidecar.original.folder import Folder
from services.sidecar.original.placeholders import Values
from services.sidecar.original.replaying import HOOK, replay_settings
from services.sidecar.original.streams import FILE

TOPIC = "dev.ent.all.kafka.replay.metadata.0"


def folder(application: str, given: dict[str, Any]) -> Folder:
    streams = {"properties": {"application.id": application}, "deadLetterControllerTopic": TOPIC}
    return Folder(Path(), {FILE: streams}, frozenset(), Values(given, {}))


def test_its_hook_switches_it_on_and_the_application_shares_it() -> None:
    assert replay_settings(folder("shop", {}), [HOOK]) == {
        "dead_letter_controller_topic": TOPIC,
        "dead_letter_controller_group": "shop-replaystream",
    }


def test_an_application_without_a_name_has_our_group() -> None:
    assert replay_settings(folder("placeholder", {}), [HOOK]) == {"dead_letter_controller_topic": TOPIC}


@pytest.mark.parametrize(
    ("hooks", "given", "is_on"),
    [
        (["ProducerStartupHook"], {f"{FILE}.deadLetterControllerTopic": TOPIC}, False),
        ([], {f"{FILE}.deadLetterControllerTopic": TOPIC}, True),
        ([], {}, False),
    ],
    ids=["hooks without it", "no hooks, and said", "no hooks, as shipped"],
)
def test_without_it_nobody_listens_unless_it_is_said(hooks: list[str], given: dict[str, Any], is_on: bool) -> None:
    assert bool(replay_settings(folder("shop", given), hooks)) is is_on
