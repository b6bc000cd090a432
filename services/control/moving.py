"""The parts of control that lead topics to other clusters, put together: moves, stitched logs, forks, and all of a
cluster's topics.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import ModuleType
from typing import Any

from mesh.member_keys import MemberKeys
from mesh.rpc import (
    drains_grpc,
    fail_backs_grpc,
    move_certificates_grpc,
    rehearsals_grpc,
    standbys_grpc,
    topic_moves_grpc,
    topics_grpc,
)
from services.control.api.drain_service import DrainService
from services.control.api.fail_back_service import FailBackService
from services.control.api.move_certificate_service import TopicMoveCertificateService
from services.control.api.rehearsal_service import RehearsalService
from services.control.api.standby_service import StandbyService
from services.control.api.topic_move_service import TopicMoveService
from services.control.api.topic_service import TopicService
from services.control.decisions.drains.commands import DrainDecisions
from services.control.decisions.drains.surveys import Surveys
from services.control.decisions.fail_backs.commands import FailBackDecisions
from services.control.decisions.forks.commands import ForkDecisions
from services.control.decisions.members.formats import too_old
from services.control.decisions.members.members import Members
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.rehearsals.commands import RehearsalDecisions
from services.control.decisions.rules.commands import RuleDecisions
from services.control.decisions.standbys.commands import StandbyDecisions
from services.control.decisions.standbys.reports import StandbyReports
from services.control.decisions.stitches.expiry import Expiry
from services.control.decisions.stitches.retaining import Retaining
from services.control.decisions.topic_moves.certificates import Certificates
from services.control.decisions.topic_moves.commands import TopicMoveDecisions
from services.control.decisions.topic_moves.leftovers import Leftovers
from services.control.decisions.topic_moves.old_logs import OldLogs
from services.control.decisions.topic_moves.preparation import Preparation
from services.control.decisions.topics.looking import Looking
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections


class Moving:
    """See above."""

    def __init__(
        self,
        journal: Journal,
        connections: Connections,
        rules: RuleDecisions,
        members: Members,
        progress: RecordProgress,
        looking: Looking,
        own_topics: Sequence[str],
        keys: MemberKeys | None,
    ) -> None:
        self.retaining = Retaining(journal, connections)
        preparation = Preparation(connections, lambda needed: too_old(members.all(), needed), self.retaining)
        moves = TopicMoveDecisions(journal, rules, connections, progress, preparation)
        certificates, old_logs = Certificates(journal, connections), OldLogs(journal, connections)
        surveys = Surveys(journal, connections, looking)
        drains = DrainDecisions(journal, moves, surveys, progress, own_topics, rules.check_known)
        self.standby_reports = StandbyReports()
        standbys = StandbyDecisions(journal, rules, connections, progress, own_topics, members, self.standby_reports)
        fail_backs = FailBackDecisions(journal, connections, members, moves, drains, rules.check_known)
        rehearsals = RehearsalDecisions(journal, connections, looking, members)
        forks = ForkDecisions(journal, rules, connections, preparation, looking)
        self.services: Sequence[tuple[ModuleType, object]] = (
            (topic_moves_grpc, TopicMoveService(journal, moves, certificates)),
            (move_certificates_grpc, TopicMoveCertificateService(journal, certificates, keys)),
            (drains_grpc, DrainService(journal, drains)),
            (standbys_grpc, StandbyService(journal, standbys)),
            (fail_backs_grpc, FailBackService(journal, fail_backs)),
            (rehearsals_grpc, RehearsalService(journal, rehearsals)),
            (topics_grpc, TopicService(journal, connections, looking, forks)),
        )
        """Each with the module of its stubs."""
        self.loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "moves of topics": moves.run,
            "drains of clusters": drains.run,
            "standbys of clusters": standbys.run,
            "fail-backs of clusters": fail_backs.run,
            "certificates of moves": certificates.run,
            "old logs of moves": old_logs.run,
            "topics that moves leave behind": Leftovers(journal, connections).run,
            "expiry of parts": Expiry(journal, connections, self.retaining).run,
            "retention of stitched logs": self.retaining.run,
            "rehearsals of clusters": rehearsals.run,
        }
        """Run for ever, by name."""
