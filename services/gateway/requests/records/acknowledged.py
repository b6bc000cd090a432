"""How far clusters have acknowledged the topics under standby: a fail-over counts its loss by these ends. No I/O.

Theory of operation
1. The table has the topics. All other topics pay nothing: the route of a topic has its log, or None.
2. An end is noted before its producer gets the answer. So whatever a producer was answered is in the next report.
3. Offsets are those of the cluster, also where clients see others.
4. Batches of transactions count when their cluster has acknowledged them: the transaction may end at another gateway.
5. Without acks nothing is acknowledged, and nothing counts.
"""

from collections.abc import Iterable

from mesh.rpc import acknowledgements


class AcknowledgedLog:
    """One topic on the cluster that has a standby."""

    __slots__ = ("cluster", "ends", "since", "topic", "transactional", "unreported")

    def __init__(self, log: acknowledgements.StandbyLog) -> None:
        self.topic, self.cluster, self.since = log.topic, log.cluster_name, log.since_revision
        self.ends: dict[int, int] = {}
        """Partition -> behind the last acknowledged record."""
        self.transactional: set[int] = set()
        self.unreported: set[int] = set()
        """Partitions that have grown since the last report."""

    def note(self, partition: int, end: int) -> None:
        """A batch that ends there is acknowledged."""
        if end > self.ends.get(partition, 0):
            self.ends[partition] = end
            self.unreported.add(partition)

    def report(self, *, everything: bool) -> acknowledgements.AcknowledgedLog | None:
        """The partitions that have grown since the last report; None if there are none."""
        partitions = sorted(self.ends if everything else self.unreported)
        self.unreported.clear()
        if not partitions:
            return None
        return acknowledgements.AcknowledgedLog(
            topic=self.topic,
            since_revision=self.since,
            partitions=[
                acknowledgements.AcknowledgedPartition(
                    partition=each, end=self.ends[each], transactional=each in self.transactional
                )
                for each in partitions
            ],
        )


class AcknowledgedLogs:
    """The logs under standby, by the topic's name."""

    def __init__(self) -> None:
        self.by_topic: dict[str, AcknowledgedLog] = {}
        self._revision = 0

    def of(self, topic: str, cluster: str) -> AcknowledgedLog | None:
        """The log of the topic, if it is under standby on this cluster."""
        log = self.by_topic.get(topic)
        return log if log is not None and log.cluster == cluster else None

    def follow(self, policy: acknowledgements.StandbyPolicy | None) -> None:
        """The table in force has this policy."""
        if policy is None or policy.revision == self._revision:
            return
        self._revision, before = policy.revision, self.by_topic
        self.by_topic = {}
        for each in policy.logs:
            known = before.get(each.topic)
            same = known is not None and (known.cluster, known.since) == (each.cluster_name, each.since_revision)
            self.by_topic[each.topic] = known if known is not None and same else AcknowledgedLog(each)

    def clusters(self) -> set[str]:
        """The clusters that have a standby."""
        return {log.cluster for log in self.by_topic.values()}

    def report(self, *, everything: bool) -> Iterable[acknowledgements.AcknowledgedLog]:
        """The logs that have grown since the last report."""
        found = (log.report(everything=everything) for log in self.by_topic.values())
        return [each for each in found if each is not None]
