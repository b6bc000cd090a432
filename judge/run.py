"""A run: processes work while faults come and go; then all is healed, probed, and read to the end."""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from judge.clients.java_host import JavaHost
from judge.clients.made import Makes
from judge.clients.own_consumer import LATEST, OwnConsumer
from judge.clients.own_producer import OwnProducer
from judge.clients.roads import Roads
from judge.faults.cable import Cables
from judge.faults.fault import Fault, of_cables
from judge.faults.nemesis import Moves, Nemesis
from judge.faults.stalls import Stalling
from judge.history import Guarantee, History, Kind, Outcome, Place, Poll
from judge.machine import Machine
from judge.operating import Operating
from judge.plan import Client, Dose, Plan
from judge.protocol.connection import Address, NoAnswerError, NotSentError
from judge.protocol.errors import KafkaError
from judge.recorder import Recorder
from judge.systems.skipped_markers import Skipped
from judge.systems.system import System
from judge.worker import Worker

VALUES_EACH = 10_000_000
STOP_S = 120.0
RECOVERY_S = 90.0
"""After the last fault a probe has to succeed within this."""
HANGING_S = 75.0
"""A transaction of nobody's has ended by then: 20 s of its own, and what brokers and gateways take to see the end."""


@dataclass(slots=True)
class Run:
    plan: Plan
    system: System
    seconds: float
    shake: bool = True
    """The judge's own clients go through cables that are cut, slowed and so on."""
    cables: Cables | None = None
    """Others than plain ones: those of tests lie."""
    say: Callable[[str], None] = lambda text: None
    enough: Callable[[int], bool] = lambda operations: False
    """Whether so many operations are enough, before the time is over."""

    java: Sequence[str] = ()
    """The command that runs Kafka's own clients; none where the plan has no such process."""
    dose: Dose = field(default_factory=Dose)
    recovery_s: float = RECOVERY_S

    def judged_history(self) -> History:
        cables = self.cables or Cables()
        recorder = Recorder(self.system.revision)
        wanted = any(each.client is Client.JAVA for each in self.plan.processes)
        java = JavaHost(self.java).start() if wanted else None
        dial = cables.dial if self.shake or self.cables else lambda to: to
        makes = Makes(self.system.doors, self.plan.run, dial, java)
        try:
            return self._judged(recorder, makes, cables)
        finally:
            cables.close()
            if java is not None:
                java.close()

    def _judged(self, recorder: Recorder, makes: Makes, cables: Cables) -> History:
        self.system.markers.tell = lambda skipped: _record(skipped, makes, recorder)
        for topic in self.plan.topics:
            self.system.create_topic(topic.name, topic.partitions, elsewhere=topic.elsewhere)
        self._await_topics()
        for group in {makes.group(each) for each in self.plan.sharing()}:
            self.system.share_from_the_start(group)
        stop = threading.Event()
        workers = [self._worker(number, makes, recorder, stop) for number in range(len(self.plan.processes))]
        faults: list[Fault] = [*self.system.faults, *(of_cables(cables) if self.shake else [])]
        faults = [fault for fault in faults if re.search(self.dose.only, fault.name)]
        moves = Moves()
        nemesis = Nemesis(faults, recorder, self.say, self.dose.with_a_move, moves=moves)
        moving = [topic.name for topic in self.plan.topics if topic.moves]
        stalls = [fault for fault in self.system.stalls.faults if re.search(self.dose.only, fault.name)]
        stalling = Stalling(replace(self.system.stalls, faults=stalls), nemesis) if stalls else None
        operating = Operating(self.system, moving, recorder, moves, self.dose, stalling)
        threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
        chances = [self.plan.chance(f"nemesis-{lane}") for lane in range(self.dose.lanes if faults else 0)]
        others = [threading.Thread(target=nemesis.run, args=(chance,), daemon=True) for chance in chances]
        if self.system.move is not None:
            told = (self.plan.chance("operator"), nemesis.stop)
            others.append(threading.Thread(target=operating.run, args=told, daemon=True))
        others.append(threading.Thread(target=Machine(recorder).run, args=(nemesis.stop,), daemon=True))
        for thread in (*threads, *others):
            thread.start()
        self._wait(workers, recorder)
        nemesis.stop.set()
        for thread in others:
            thread.join(STOP_S)
        self.say(f"faults are over; {len(recorder)} operations so far")
        self._recover(recorder, operating)
        stop.set()
        for thread in threads:
            thread.join(STOP_S)
        for worker, thread in zip(workers, threads, strict=True):
            if worker.failure:
                raise RuntimeError(f"{worker.process.name} failed: {worker.failure[0]!r}") from worker.failure[0]
            if thread.is_alive():
                self._note(recorder, 0.0, f"{worker.process.name} did not end within {STOP_S:g} s")
        self._read_all(recorder)
        self._read_commits(recorder, makes)
        return recorder.told(self.plan.seed, self.system.name)

    def _await_topics(self) -> None:
        """Each door tells of all partitions: a new topic, or a rule about it, takes a moment to get there."""
        deadline = time.monotonic() + RECOVERY_S
        for door in self.system.doors:
            roads = Roads((door,), "judge-start", random.Random(0))
            for topic in self.plan.topics:
                for partition in range(topic.partitions):
                    while not roads.knows(Place(topic.name, partition)):
                        if time.monotonic() > deadline:
                            raise TimeoutError(f"{_told(door)} tells of no leader of {topic.name}-{partition}")
                        time.sleep(0.2)
            roads.close()

    def _worker(self, number: int, makes: Makes, recorder: Recorder, stop: threading.Event) -> Worker:
        process = self.plan.processes[number]
        topics = self.plan.topics_of(process)
        values = itertools.count((number + 1) * VALUES_EACH)
        chance, session_s = self.plan.chance(process.name), self.system.share_session_s
        return Worker(process, topics, makes, recorder, chance, values, stop, session_s)

    def _wait(self, workers: Sequence[Worker], recorder: Recorder) -> None:
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline and not self.enough(len(recorder)):
            if any(worker.failure for worker in workers):
                return
            time.sleep(0.2)

    def _recover(self, recorder: Recorder, operating: Operating) -> None:
        """Through each door a send and its poll, and each topic that moves, moved to and fro.

        After a send that failed to the end of its time, each later send has one attempt. A failed move is the last one.
        """
        values = itertools.count(VALUES_EACH // 2)
        within_s = self.recovery_s
        for door in self.system.doors:
            for topic in self.plan.topics:
                place = Place(topic.name, 0)
                send = self._sends(recorder, door, place, values)
                if not self._probe(recorder, f"a send to {place} through {_told(door)}", send, within_s):
                    within_s = 0.0
        moving = [topic.name for topic in self.plan.topics if topic.moves and self.system.move is not None]
        for topic_name, cluster in itertools.product(moving, sorted(self.system.clusters)):
            move = partial(operating.move, topic_name, cluster)
            if not self._probe(recorder, f"a move of {topic_name} to {cluster}", move, self.recovery_s):
                return

    def _sends(
        self, recorder: Recorder, door: Address, place: Place, values: itertools.count[int]
    ) -> Callable[[], str]:
        def send() -> str:
            roads = Roads((door,), "judge-probe", random.Random(0))
            producer, value = OwnProducer(roads, Guarantee.IDEMPOTENT), next(values)
            start = recorder.now()
            sent = producer.send(place, [value])
            recorder.add(
                "probe", Kind.SEND, sent.outcome, start, sent.sends, client="own", via=sent.via, note=sent.note
            )
            producer.close()
            return sent.note if sent.outcome is not Outcome.OK else ""

        return send

    def _probe(self, recorder: Recorder, what: str, attempt: Callable[[], str], within_s: float) -> bool:
        """Whether an attempt succeeded within this time. There is always one."""
        start = recorder.now()
        while note := attempt():
            if recorder.now() - start > within_s:
                self._note(recorder, start, f"{what}: {note}")
                return False
            time.sleep(1.0)
        recorder.add("probe", Kind.RECOVER, Outcome.OK, start, note=what)
        return True

    def _note(self, recorder: Recorder, start: float, text: str) -> None:
        recorder.add("probe", Kind.RECOVER, Outcome.FAIL, start, note=text)

    def _read_all(self, recorder: Recorder) -> None:
        """Each log where it lies, and what clients see of each topic through each door."""
        for cluster, doors in self.system.storage.items():
            for topic in self.plan.topics:
                places = [Place(topic.name, partition) for partition in range(topic.partitions)]
                self._read_to_the_end(recorder, doors, places, cluster, Kind.SWEEP)
        for door in self.system.doors if self.system.clusters else ():
            for topic in self.plan.topics:
                places = [Place(topic.name, partition) for partition in range(topic.partitions)]
                self._read_to_the_end(recorder, (door,), places, "", Kind.POLL)

    def _read_to_the_end(
        self, recorder: Recorder, doors: tuple[Address, ...], places: Sequence[Place], cluster: str, kind: Kind
    ) -> None:
        roads = Roads(doors, "judge-sweep", random.Random(0))
        reader = OwnConsumer(roads)
        reader.assign(places)
        where = f"{places[0].topic} at {cluster or _told(doors[0])}"
        start = recorder.now()
        found: list[Poll] = []
        try:
            ends = {place: self._stable_end(reader, place) for place in places}
            deadline = time.monotonic() + RECOVERY_S + 0.1 * len(places)
            while left := [place for place in places if reader.positions[place] < ends[place]]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{left[0]} was read to {reader.positions[left[0]]} of {ends[left[0]]}")
                done = {place: position for place, position in reader.positions.items() if place not in left}
                reader.positions = {place: reader.positions[place] for place in left}
                found.extend(reader.poll().polls)
                reader.positions |= done
        except (TimeoutError, NotSentError, NoAnswerError, KafkaError) as error:
            self._note(recorder, start, f"{where} can't be read to its end: {error}")
        polls = tuple(poll if not cluster else _at(poll, cluster) for poll in found)
        recorder.add(f"sweep {where}", kind, Outcome.OK, start, polls, client="own", via=_told(doors[0]))
        reader.close()

    def _stable_end(self, reader: OwnConsumer, place: Place) -> int:
        """The end when no transaction is open; a hanging transaction is reported."""
        deadline = time.monotonic() + HANGING_S
        while True:
            try:
                stable, end = reader.bound(place, LATEST), reader.bound(place, LATEST, 0)
                if stable == end:
                    return end
                said = f"a transaction hangs: the last stable offset of {place} is {stable}, the end {end}"
            except (NotSentError, NoAnswerError, KafkaError) as error:
                reader.roads.forget()
                said = str(error)
            if time.monotonic() > deadline:
                raise TimeoutError(said)
            time.sleep(0.2)

    def _read_commits(self, recorder: Recorder, makes: Makes) -> None:
        """The positions of each group, as each door tells them, and as the owner of each topic stores them."""
        groups = {makes.group(each) for each in self.plan.committing()}
        places = [Place(each.name, part) for each in self.plan.topics for part in range(each.partitions)]
        looks: list[tuple[tuple[Address, ...], str, list[Place]]]
        looks = [((door,), _told(door), places) for door in self.system.doors]
        for cluster, doors in self.system.clusters.items():
            owned = [place for place in places if self.system.owner(place.topic) == cluster]
            if owned:
                looks.append((doors, cluster, owned))
        for group in sorted(groups):
            for doors, via, asked in looks:
                reader = OwnConsumer(Roads(doors, "judge-commits", random.Random(0)))
                start = recorder.now()
                told = reader.committed(group, asked)
                note = told.note or "at rest"
                recorder.add("sweep", Kind.COMMITTED, told.outcome, start, told.marks, client="own", via=via, note=note)
                reader.close()


def _record(skipped: Skipped, makes: Makes, recorder: Recorder) -> None:
    places = [Poll(place, ()) for place in skipped.places]
    process = skipped.transactional_id.removeprefix(makes.transactional_id(""))
    recorder.add(skipped.broker, Kind.UNMARKED, Outcome.OK, recorder.now(), places, note=process)


def _told(door: Address) -> str:
    return f"{door[0]}:{door[1]}"


def _at(poll: Poll, cluster: str) -> Poll:
    return replace(poll, place=replace(poll.place, cluster=cluster))
