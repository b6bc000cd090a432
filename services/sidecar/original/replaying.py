"""The topic of commands to replay in the original's kafka-streams.yml, as our settings."""

from __future__ import annotations

from collections.abc import Collection

from services.sidecar.original.folder import Folder
from services.sidecar.original.streams import FILE, application_id

HOOK = "MessageReplayStreamStartupHook"
HOOKS = frozenset({HOOK})


def replay_settings(read: Folder, hooks: Collection[str]) -> dict[str, str]:
    """Our settings. They are empty unless the topic is on: by its start-up hook or, without hooks, by its name.

    As in the original, sidecars of one application share the commands by a group named after the application.
    """
    topic = str(read.files[FILE].get("deadLetterControllerTopic") or "")
    is_on = HOOK in hooks if hooks else read.values.gives(f"{FILE}.deadLetterControllerTopic")
    if not topic or not is_on:
        return {}
    settings = {"dead_letter_controller_topic": topic}
    if application := application_id(read):
        settings["dead_letter_controller_group"] = f"{application}-replaystream"
    return settings
