"""What the sidecar knows of schemas: found by id, version, text or as the latest, with all that they refer to."""

from dataclasses import dataclass, field

import pytest
from prometheus_client import REGISTRY

from mesh.schemas.schema import (
    Reference,
    RegistryUnavailableError,
    SchemaError,
    SchemaKind,
    UnknownSchemaError,
)
from services.sidecar.schemas.known import KeepingLimits, KnownSchemas
from services.sidecar.schemas.questions import ByGuid, ById, ByText, ByVersion, Latest, Question
from services.sidecar.schemas.registry import Answer, RegistryAccess, SchemaRegistry


@dataclass
class PlayedRegistry(SchemaRegistry):
    """Answers from memory, and counts what it is asked."""

    subjects: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_away: bool = False

    def __post_init__(self) -> None:
        super().__init__(RegistryAccess("http://registry"))

    def put(self, subject: str, text: str, *references: Reference) -> Answer:
        versions = self.subjects.setdefault(subject, [])
        number = sum(len(each) for each in self.subjects.values()) + 1
        answer = Answer(number, SchemaKind.AVRO, text, references, f"guid-{number}", subject, len(versions) + 1)
        versions.append(answer)
        return answer

    def _found(self, what: str, *found: Answer) -> Answer:
        self.asked.append(what)
        if self.is_away:
            raise RegistryUnavailableError("away")
        if not found:
            raise UnknownSchemaError(f"no {what}")
        return found[0]

    def _all(self) -> list[Answer]:
        return [one for versions in self.subjects.values() for one in versions]

    def by_id(self, schema_id: int) -> Answer:
        return self._found(f"id {schema_id}", *(one for one in self._all() if one.id == schema_id))

    def by_guid(self, guid: str) -> Answer:
        return self._found(guid, *(one for one in self._all() if one.guid == guid))

    def by_version(self, subject: str, version: int) -> Answer:
        versions = self.subjects.get(subject, [])
        return self._found(f"{subject} {version}", *versions[version - 1 : version])

    def latest(self, subject: str) -> Answer:
        return self._found(f"{subject} latest", *self.subjects.get(subject, [])[-1:])

    def look_up(self, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...]) -> int:
        same = [one for one in self.subjects.get(subject, []) if one.text == text]
        return self._found(f"look up {subject}", *same).id

    def register(self, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...]) -> int:
        return self._found(f"register {subject}", self.put(subject, text, *references)).id


class World:
    def __init__(self, **further: bool) -> None:
        self.now = 0.0
        self.registry = PlayedRegistry()
        self.schemas = KnownSchemas(self.registry, KeepingLimits(), clock=lambda: self.now, **further)

    def error(self, question: Question) -> str:
        with pytest.raises(SchemaError) as raised:
            self.schemas.find(question)
        return str(raised.value)


def test_one_schema_is_one_object_however_it_is_found() -> None:
    world = World()
    world.registry.put("fruit", '"string"')
    questions: list[Question] = [
        Latest("fruit"),
        ById(1),
        ByVersion("fruit", 1),
        ByText.of("fruit", SchemaKind.AVRO, '"string"'),
    ]
    assert len({id(world.schemas.find(question)) for question in questions}) == 1


def test_ids_and_versions_are_asked_for_once() -> None:
    world = World()
    world.registry.put("fruit", '"string"')
    for _ in range(2):
        world.schemas.find(ByVersion("fruit", 1))
        world.schemas.find(ById(1))
        world.schemas.find(ByGuid("guid-1"))
        world.now += 1e6
    assert world.registry.asked == ["fruit 1", "guid-1"]


def test_the_latest_is_asked_for_again_after_its_time() -> None:
    world = World()
    world.registry.put("fruit", '"string"')
    world.schemas.find(Latest("fruit"))
    world.registry.put("fruit", '"bytes"')
    world.now = 299
    assert world.schemas.find(Latest("fruit")).version == 1
    world.now = 300
    assert world.schemas.find(Latest("fruit")).version == 2


def test_the_latest_known_goes_on_while_the_registry_is_away() -> None:
    world = World()
    world.registry.put("fruit", '"string"')
    world.schemas.find(Latest("fruit"))
    world.now, world.registry.is_away = 300, True
    assert world.schemas.find(Latest("fruit")).id == 1
    with pytest.raises(RegistryUnavailableError):
        world.schemas.find(Latest("other"))


def test_a_new_text_is_registered_once_and_is_the_latest_at_once() -> None:
    world = World()
    world.registry.put("fruit", '"string"')
    world.schemas.find(Latest("fruit"))
    for _ in range(2):
        assert world.schemas.find(ByText.of("fruit", SchemaKind.AVRO, '"bytes"')).id == 2
    assert world.registry.asked == ["fruit latest", "look up fruit", "register fruit"]
    assert world.schemas.find(Latest("fruit")).id == 2


def test_who_may_not_register_is_told_that_the_text_is_new() -> None:
    world = World(may_register=False)
    assert "may not register it" in world.error(ByText.of("fruit", SchemaKind.AVRO, '"bytes"'))
    assert world.registry.subjects == {}


def test_what_there_is_not_is_asked_for_again_soon() -> None:
    world = World()
    for _ in range(2):
        assert world.error(Latest("fruit")) == "no fruit latest"
    assert world.registry.asked == ["fruit latest"]
    world.now = 1
    world.registry.put("fruit", '"string"')
    assert world.schemas.find(Latest("fruit")).id == 1


def test_a_schema_comes_with_all_it_refers_to_those_first_that_others_need() -> None:
    world = World()
    world.registry.put("color", "c")
    world.registry.put("apple", "a", Reference("shop.Color", "color", 1))
    world.registry.put("pear", "p", Reference("shop.Color", "color", 1))
    world.registry.put("crate", "x", Reference("shop.Apple", "apple", 1), Reference("shop.Pear", "pear", 1))
    crate = world.schemas.find(Latest("crate"))
    assert list(crate.references) == ["shop.Color", "shop.Apple", "shop.Pear"]
    assert list(crate.references["shop.Pear"].references) == ["shop.Color"]
    assert world.registry.asked.count("color 1") == 1


def test_two_schemas_by_one_name_are_refused() -> None:
    world = World()
    world.registry.put("color", "c")
    world.registry.put("color", "other")
    world.registry.put("crate", "x", Reference("Color", "color", 1), Reference("Color", "color", 2))
    assert world.error(Latest("crate")) == "it refers to two different schemas by the name Color"


@pytest.mark.parametrize("question", [ById(1), ByVersion("hen", 1)])
def test_a_circle_is_refused(question: Question) -> None:
    world = World()
    world.registry.put("hen", "h", Reference("Egg", "egg", 1))
    world.registry.put("egg", "e", Reference("Hen", "hen", 1))
    assert "in a circle" in world.error(question)


def test_more_references_than_anybody_needs_are_refused() -> None:
    world = World()
    for number in range(101):
        world.registry.put(f"s{number}", f"t{number}")
    world.registry.put("crate", "x", *(Reference(f"n{number}", f"s{number}", 1) for number in range(101)))
    assert world.error(Latest("crate")) == "it refers to more than 100 others"


def test_many_references_of_a_slow_registry_end_in_time_and_go_on_where_they_were() -> None:
    world = World()
    for number in range(3):
        world.registry.put(f"s{number}", f"t{number}")
    world.registry.put("crate", "x", *(Reference(f"n{number}", f"s{number}", 1) for number in range(3)))
    slow = world.registry.by_version

    def by_version(subject: str, version: int) -> Answer:
        world.now += 6
        return slow(subject, version)

    world.registry.by_version = by_version  # type: ignore[method-assign]
    with pytest.raises(RegistryUnavailableError, match="takes too long"):
        world.schemas.find(Latest("crate"))
    world.now += 1
    assert len(world.schemas.find(Latest("crate")).references) == 3


def test_hits_misses_and_failures_are_counted() -> None:
    def count(outcome: str) -> float:
        labels = {"by": "latest", "outcome": outcome}
        return REGISTRY.get_sample_value("kafka_mesh_sidecar_schema_lookups_total", labels) or 0.0

    before = {outcome: count(outcome) for outcome in ("hit", "miss", "failed")}
    world = World()
    world.registry.put("fruit", '"string"')
    for _ in range(3):
        world.schemas.find(Latest("fruit"))
    world.error(Latest("other"))
    assert {outcome: count(outcome) - before[outcome] for outcome in before} == {"hit": 2, "miss": 1, "failed": 1}
