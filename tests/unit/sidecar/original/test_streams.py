"""The original's kafka-streams.yml, and the settings that it stands for."""

from pathlib import Path
from typing import Any

import yaml

from services.sidecar.original.translation import Original, original_config

LOCAL = {
    "kafka-producer.security.protocol": "PLAINTEXT",
    "kafka-consumer.security.protocol": "PLAINTEXT",
    "security.enableVerifyJwt": False,
}


def read(folder: Path, values: dict[str, Any], **files: Any) -> Original:
    for name, content in {"values": {**LOCAL, **values}, **files}.items():
        (folder / f"{name.replace('__', '-')}.yml").write_text(yaml.safe_dump(content))
    return original_config(folder, {}, {})


def streams(found: Original) -> dict[str, Any]:
    return {name: value for name, value in found.settings.items() if name.startswith("streams")}


def test_as_it_is_shipped_it_names_no_application(tmp_path: Path) -> None:
    assert streams(read(tmp_path, {})) == {"streams_clean_up": False, "streams_auto_offset_reset": "earliest"}


def test_its_words_are_ours(tmp_path: Path) -> None:
    values = {
        "kafka-streams.application.id": "shop",
        "kafka-streams.cleanUp": True,
        "kafka-streams.auto.offset.reset": "latest",
    }
    assert streams(read(tmp_path, values)) == {
        "streams_application_id": "shop",
        "streams_clean_up": True,
        "streams_auto_offset_reset": "latest",
    }


def test_what_is_said_once_for_all_or_not_known_is_named(tmp_path: Path) -> None:
    own = {"properties": {"state.dir": "/var/streams"}, "auditTopic": "other", "numThreads": 4}
    warnings = [one for one in read(tmp_path, {}, kafka__streams=own).warnings if one.startswith("kafka-streams.yml")]
    assert warnings == [
        "kafka-streams.yml: auditTopic is not used: audit_topic is said once for the whole sidecar",
        "kafka-streams.yml: properties.state.dir is not used: state is kept in state_dir",
        "kafka-streams.yml: numThreads is not known here, and not used",
    ]


def test_a_hook_that_starts_streams_in_java_is_named(tmp_path: Path) -> None:
    hooks = ["com.networknt.mesh.kafka.ProducerStartupHook", "com.acme.WordCountStreamsStartupHook"]
    found = read(tmp_path, {"service.com.networknt.server.StartupHookProvider": hooks})
    assert (
        "service.yml: start-up hook WordCountStreamsStartupHook is not known here; topologies are named by streams"
        in found.warnings
    )
