"""What the original's kafka-streams.yml says of its topic of commands to replay, in our words."""

from __future__ import annotations

from collections.abc import Collection

from services.sidecar.original.folder import Folder

FILE = "kafka-streams"
HOOK = "MessageReplayStreamStartupHook"
HOOKS = frozenset({HOOK})
PLACEHOLDER = "placeholder"
"""What the original ships for the application's id."""


def replay_settings(read: Folder, hooks: Collection[str]) -> dict[str, str]:
    """Our settings; none where nobody switches the topic on: by its start-up hook or, without a list of hooks, by name.

    Sidecars of one application share the commands, as they do there: by a group named after the application.
    """
    said = read.files.get(FILE, {})
    topic = str(said.get("deadLetterControllerTopic") or "")
    is_on = HOOK in hooks if hooks else read.values.gives(f"{FILE}.deadLetterControllerTopic")
    if not topic or not is_on:
        return {}
    settings = {"dead_letter_controller_topic": topic}
    application = (said.get("properties") or {}).get("application.id")
    if application not in (None, "", PLACEHOLDER):
        settings["dead_letter_controller_group"] = f"{application}-replaystream"
    return settings
