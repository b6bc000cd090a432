"""The topics under standby in a table, as they follow from events: gateways note how far these are acknowledged."""

from __future__ import annotations

from mesh.rpc import acknowledgements, events

STANDBY_EVENTS = frozenset({"standby_topics_set", "standby_ended", "fail_over_ended"})
"""The payloads that change the policy."""


class StandbyDraft:
    """A policy that is carried on from event to event; the message is made when it is asked for."""

    def __init__(self, policy: acknowledgements.StandbyPolicy | None) -> None:
        self._policy = policy
        """The last message that was asked for; it is up to date unless there was an event since then."""
        self._revision = 0 if policy is None else policy.revision
        self._logs = {} if policy is None else {(each.cluster_name, each.topic): each for each in policy.logs}

    @property
    def policy(self) -> acknowledgements.StandbyPolicy | None:
        """The policy now, None before the first event. Between two events it is the same object."""
        if self._revision != (0 if self._policy is None else self._policy.revision):
            logs = [self._logs[key] for key in sorted(self._logs)]
            self._policy = acknowledgements.StandbyPolicy(logs=logs, revision=self._revision)
        return self._policy

    def change(self, event: events.Event) -> None:
        """Takes an event about standbys. A topic is in the policy until the rules lead it to its copy."""
        match event.WhichOneof("payload"):
            case "standby_topics_set":
                for each in event.standby_topics_set.topics:
                    key = (each.copy.source_cluster, each.topic)
                    if each.left:
                        self._logs.pop(key, None)
                    elif key not in self._logs:
                        cluster, topic = key
                        self._logs[key] = acknowledgements.StandbyLog(
                            topic=topic, cluster_name=cluster, since_revision=event.position
                        )
            case "standby_ended":
                self._without(event.standby_ended.name)
            case "fail_over_ended":
                self._without(event.fail_over_ended.name)
        self._revision = event.position

    def _without(self, standby: str) -> None:
        cluster = standby.rpartition("/")[2]
        self._logs = {key: log for key, log in self._logs.items() if key[0] != cluster}
