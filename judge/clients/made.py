"""Makes the client of a process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from judge.clients.client import Consumer, Producer, ShareConsumer
from judge.clients.java_host import JavaHost
from judge.clients.own_consumer import OwnConsumer
from judge.clients.own_producer import OwnProducer
from judge.clients.roads import Roads
from judge.history import Guarantee
from judge.plan import Client, Process, Role
from judge.protocol.connection import Address


@dataclass(frozen=True, slots=True)
class Makes:
    doors: tuple[Address, ...]
    run: str
    dial: Callable[[Address], Address] = lambda to: to
    java: JavaHost | None = None

    def group(self, process: Process) -> str:
        """Members share one by protocol and client; a reader has its own."""
        own = process.name
        if process.role is Role.MEMBER:
            own = f"{process.protocol}-{process.client}"
        elif process.role is Role.SHARER:
            own = f"share-{process.client}"
        return f"judge-{self.run}-{own}"

    def transactional_id(self, process: str) -> str:
        return f"judge-{self.run}-{process}"

    def producer(self, process: Process, chance: random.Random) -> Producer:
        transactional_id = ""
        if process.guarantee is Guarantee.TRANSACTIONAL:
            transactional_id = self.transactional_id(process.name)
        match process.client:
            case Client.OWN:
                return OwnProducer(self.roads(process, chance), process.guarantee, transactional_id)
            case Client.LIBRDKAFKA:
                from judge.clients.librdkafka import LibrdkafkaProducer

                return LibrdkafkaProducer(
                    self._bootstrap(chance), process.guarantee, transactional_id, process.compression, process.name
                )

            case Client.JAVA:
                from judge.clients.java import JavaProducer

                assert self.java is not None, "a run with Java has its process"
                return JavaProducer(
                    self.java,
                    self._bootstrap(chance),
                    process.guarantee,
                    transactional_id,
                    process.compression,
                    process.name,
                )

    def consumer(self, process: Process, chance: random.Random) -> Consumer:
        group = self.group(process)
        match process.client:
            case Client.OWN:
                return OwnConsumer(self.roads(process, chance), group)
            case Client.LIBRDKAFKA:
                from judge.clients.librdkafka import LibrdkafkaConsumer

                return LibrdkafkaConsumer(self._bootstrap(chance), group, process.protocol, process.name)

            case Client.JAVA:
                from judge.clients.java import JavaConsumer

                assert self.java is not None, "a run with Java has its process"
                return JavaConsumer(self.java, self._bootstrap(chance), group, process.protocol, process.name)

    def share_consumer(self, process: Process, chance: random.Random) -> ShareConsumer:
        from judge.clients.java import JavaShareConsumer

        assert self.java is not None, "a run with Java has its process"
        return JavaShareConsumer(self.java, self._bootstrap(chance), self.group(process), process.name)

    def roads(self, process: Process, chance: random.Random) -> Roads:
        door = chance.randrange(len(self.doors))
        return Roads(self.doors, process.name, chance, process.spread, self.dial, door=door)

    def _bootstrap(self, chance: random.Random) -> str:
        """One bootstrap address: a library would choose a gateway by chance, and the history could not name it."""
        host, port = chance.choice(self.doors)
        return f"{host}:{port}"
