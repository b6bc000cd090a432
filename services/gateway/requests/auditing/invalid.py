"""A batch, or the name of a new topic, that breaks a rule of validation, as metrics, the log and the audit tell it."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.validation import Breach, Mode


@dataclass(frozen=True, slots=True)
class InvalidBatch:
    """See above."""

    principal: str
    host: str
    client_id: str
    topic: str
    partition: int
    records: int
    breach: Breach

    @property
    def enforced(self) -> bool:
        """False: the batch goes on, because the rule only observes, or marks records."""
        return self.breach.rule.mode is Mode.ENFORCE

    def __str__(self) -> str:
        client = f"{self.principal} (client.id {self.client_id!r}) from host {self.host}"
        return f"{client} may not write such a batch, because {self.breach.reason}"


@dataclass(frozen=True, slots=True)
class InvalidTopic:
    """A client's topic whose name the policy does not allow."""

    principal: str
    host: str
    client_id: str
    topic: str
    breach: Breach

    @property
    def enforced(self) -> bool:
        """False: the topic is created, because the rule only observes."""
        return self.breach.rule.mode is Mode.ENFORCE

    def __str__(self) -> str:
        client = f"{self.principal} (client.id {self.client_id!r}) from host {self.host}"
        return f"{client} may not create topic {self.topic!r}, because {self.breach.reason}"
