"""What an operator types, what control is asked, and what is shown."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from click.testing import Result

from mesh import durations
from mesh.rpc import admin, events, routing
from mesh.wording import match_text
from meshctl.commands.rule_options import CLIENTS, MATCHES
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]


def rule(rule_id: str, prefix: str, target: str, place: int) -> admin.Rule:
    spec = routing.RuleSpec(rule_id=rule_id, match=routing.RuleMatch(topic_prefix=prefix), target_cluster=target)
    return admin.Rule(name=f"rules/{rule_id}", spec=spec, place=place, revision=4, actor="ada@desk")


def test_rules_are_listed_over_all_pages(control: ScriptedControl, meshctl: Meshctl) -> None:
    def page(request: admin.ListRulesRequest) -> admin.ListRulesResponse:
        if not request.page_token:
            return admin.ListRulesResponse(rules=[rule("a", "apples", "c1", 1)], next_page_token="2", revision=9)
        return admin.ListRulesResponse(rules=[rule("b", "bananas[x]", "c2", 2)], revision=9)

    control.answers["ListRules"] = page
    result = meshctl("rule", "list")
    assert result.exit_code == 0
    assert "prefix apples" in result.output
    assert "prefix bananas[x]" in result.output  # not taken for markup
    listed = json.loads(meshctl("rule", "list", "-o", "json").output)
    assert [each["spec"]["rule_id"] for each in listed["rules"]] == ["a", "b"]
    assert listed["revision"] == "9"


def test_json_has_all_fields_under_their_proto_names(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["GetStatus"] = admin.MeshStatus(revision=5)
    for arguments in (("-o", "json", "status"), ("status", "-o", "json")):
        status = json.loads(meshctl(*arguments).output)
        assert (status["revision"], status["pending_revision"], status["members"]) == ("5", "0", [])


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (("--topic", "t"), "topic"),
        (("--prefix", "p"), "topic_prefix"),
        (("--regex", "r"), "topic_regex"),
        (("--group", "g"), "group"),
        (("--group-regex", "g.*"), "group_regex"),
        (("--transactional-id-prefix", "pay-"), "transactional_id_prefix"),
    ],
)
def test_a_rule_is_added_with_each_kind_of_match(
    control: ScriptedControl, meshctl: Meshctl, options: tuple[str, str], kind: str
) -> None:
    control.answers["CreateRule"] = admin.RuleChangeResponse(revision=6, rules=[rule("x", "p", "c1", 1)])
    result = meshctl("rule", "add", *options, "--to", "c1", "--before", "fruit", "--id", "x", "--reason", "because")
    assert result.exit_code == 0, result.output
    (request,) = control.requests("CreateRule")
    assert request.rule.match.WhichOneof("kind") == kind
    assert (request.rule.rule_id, request.rule.target_cluster) == ("x", "c1")
    assert request.place.before == "rules/fruit"
    assert request.options.reason == "because"
    assert str(uuid.UUID(request.options.request_id)) == request.options.request_id
    assert "revision 6" in result.output


def test_every_match_of_the_contract_has_its_option() -> None:
    assert list(MATCHES) == [field.name for field in routing.RuleMatch.DESCRIPTOR.oneofs_by_name["kind"].fields]
    assert {*CLIENTS, "source_networks"} == set(routing.ClientMatch.DESCRIPTOR.fields_by_name)


def test_a_rule_may_be_for_some_clients_only(control: ScriptedControl, meshctl: Meshctl) -> None:
    whom = ("--for-client-id-prefix", "shop-", "--for-software", "sarama", "--from-network", "10.2.0.0/16")
    result = meshctl("rule", "set", "--prefix", "apples", *whom, "--from-network", "10.1.2.3", "--to", "c2", "--first")
    assert result.exit_code == 0, result.output
    (request,) = control.requests("SetRule")
    assert request.match.topic_prefix == "apples"
    asked = routing.ClientMatch(
        client_id_prefix="shop-", software_name="sarama", source_networks=["10.1.2.3/32", "10.2.0.0/16"]
    )
    assert request.match.client == asked
    assert match_text(request.match) == (
        "prefix apples for client id prefix shop-, software sarama, from 10.1.2.3/32 or 10.2.0.0/16"
    )


def test_a_rule_of_the_same_clients_is_found_however_they_are_written(
    control: ScriptedControl, meshctl: Meshctl
) -> None:
    client = routing.ClientMatch(source_networks=["10.0.0.0/8", "2001:db8::/32"])
    kept = admin.Rule(name="rules/x", spec=routing.RuleSpec(match=routing.RuleMatch(topic="t", client=client)))
    others = admin.Rule(name="rules/y", spec=routing.RuleSpec(match=routing.RuleMatch(topic="t")))
    control.answers["ListRules"] = admin.ListRulesResponse(rules=[others, kept])
    networks = ("2001:db8::/32", "::ffff:10.1.0.0/112", "10.0.0.0/8")
    result = meshctl(
        "rule", "remove", "--topic", "t", *(word for each in networks for word in ("--from-network", each))
    )
    assert result.exit_code == 0, result.output
    assert [request.name for request in control.requests("RemoveRule")] == ["rules/x"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--topic", "t", "--from-network", "10.1.2.3/8"), "host bits set"),
        (("--topic", "t", "--from-network", "office"), "like 10.1.0.0/16"),
        (("--for-client-id", "a"), "say what the rule is about for these clients"),
    ],
)
def test_clients_that_can_not_be_meant_are_refused_before_anybody_is_asked(
    control: ScriptedControl, meshctl: Meshctl, options: tuple[str, ...], says: str
) -> None:
    result = meshctl("rule", "set", *options, "--to", "c1")
    assert (result.exit_code, says in result.output) == (2, True), result.output
    assert control.requests("SetRule") == []


def test_the_default_cluster_is_a_rule_and_goes_like_one(control: ScriptedControl, meshctl: Meshctl) -> None:
    assert meshctl("rule", "default", "c1", "--reason", "all else").exit_code == 0
    (request,) = control.requests("SetRule")
    assert (request.match.unmatched_topics, request.target_cluster, request.options.reason) == (True, "c1", "all else")
    kept = admin.Rule(name="rules/default", spec=routing.RuleSpec(match=request.match))
    control.answers["ListRules"] = admin.ListRulesResponse(rules=[kept])
    assert meshctl("rule", "remove", "--unmatched-topics").exit_code == 0
    assert [each.name for each in control.requests("RemoveRule")] == ["rules/default"]
    assert match_text(request.match) == "unmatched topics"


def test_explain_asks_as_a_client(control: ScriptedControl, meshctl: Meshctl) -> None:
    who = ("--as-client-id", "shop-1", "--as-software", "sarama", "--as-principal", "User:a", "--as-from", "10.1.2.3")
    assert meshctl("explain", "apples", *who).exit_code == 0
    assert meshctl("explain", "apples").exit_code == 0
    asked, nobody = control.requests("Explain")
    assert asked.topic == nobody.topic == "apples"
    assert asked.client == admin.ClientIdentity(
        principal="User:a", client_id="shop-1", software_name="sarama", address="10.1.2.3"
    )
    assert nobody.client == admin.ClientIdentity()


def test_set_says_only_what_was_given(control: ScriptedControl, meshctl: Meshctl) -> None:
    assert meshctl("rule", "set", "--topic", "orders", "--upstream-topic", "shop.{topic}").exit_code == 0
    assert meshctl("rule", "set", "--group", "shop", "--to", "c1", "--no-shadow-topics").exit_code == 0
    assert meshctl("rule", "set", "--client-software-prefix", "kafkajs/", "--nodes", "per-cluster").exit_code == 0
    topic, group, client = control.requests("SetRule")
    assert (topic.target_cluster, topic.upstream_topic, topic.HasField("shadow_topics")) == ("", "shop.{topic}", False)
    assert (group.HasField("shadow_topics"), group.shadow_topics) == (True, False)
    assert (client.node_view, client.HasField("span_clusters")) == (routing.NODE_VIEW_PER_CLUSTER, False)


def test_a_rule_about_clients_needs_no_cluster(control: ScriptedControl, meshctl: Meshctl) -> None:
    assert meshctl("rule", "add", "--client-software", "kafkajs/2.2.4", "--nodes", "single").exit_code == 0
    (request,) = control.requests("CreateRule")
    assert (request.rule.target_cluster, request.rule.node_view) == ("", routing.NODE_VIEW_SINGLE)


def test_rules_say_how_they_decide(control: ScriptedControl, meshctl: Meshctl) -> None:
    specs = [
        routing.RuleSpec(match=routing.RuleMatch(topic="orders"), target_cluster="c1", upstream_topic="shop.{topic}"),
        routing.RuleSpec(match=routing.RuleMatch(group_prefix="g"), target_cluster="c2", shadow_topics=True),
        routing.RuleSpec(match=routing.RuleMatch(transactional_id="t"), target_cluster="c2", span_clusters=True),
        routing.RuleSpec(match=routing.RuleMatch(client_software="a/1"), node_view=routing.NODE_VIEW_SINGLE),
    ]
    control.answers["ListRules"] = admin.ListRulesResponse(
        rules=[admin.Rule(name=f"rules/r{place}", spec=spec, place=place) for place, spec in enumerate(specs, 1)]
    )
    lines = [" ".join(line.split()) for line in meshctl("rule", "list").output.splitlines()]
    assert lines[1].startswith("1 r1 topic orders c1 as shop.{topic} ")
    assert lines[2].startswith("2 r2 group prefix g c2 with shadow topics ")
    assert lines[3].startswith("3 r3 transactional id t c2 spanning clusters ")
    assert lines[4].startswith("4 r4 client software a/1 - a single node ")


def test_a_dry_run_tells_what_groups_will_see_and_warns(control: ScriptedControl, meshctl: Meshctl) -> None:
    effects = [
        admin.MoveEffect(topic="apples", kind=admin.MOVE_EFFECT_KIND_RECORDS_STAY, records=20),
        admin.MoveEffect(
            topic="apples", group="shop", kind=admin.MOVE_EFFECT_KIND_SILENT_SKIP, partition=2, position=12, to_end=30
        ),
        admin.MoveEffect(topic="apples", group="audit", kind=admin.MOVE_EFFECT_KIND_OUT_OF_RANGE, position=3),
    ]
    move = admin.TopicMove(
        topic="apples", from_cluster="c1", to_cluster="c2", partitions=3, from_topic="apples", to_topic="fruit.apples"
    )
    change = admin.RuleChangeResponse(revision=7, rules=[rule("a", "apples", "c2", 1)], moves=[move], effects=effects)
    control.answers["DryRun"] = admin.DryRunResponse(change=change)
    output = meshctl("rule", "set", "--prefix", "apples", "--to", "c2", "--dry-run").output
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "topic apples would move from c1 to c2 as fruit.apples (3 partitions)" in lines
    assert "apples 20 records stay behind, not copied" in lines
    assert "apples shop SILENT SKIP: goes on inside a log that is not empty 2 12 0 to 30" in lines
    assert any(line.startswith("apples audit out of range") and line.endswith("0 3 empty") for line in lines)
    assert lines[-2] == "warning: groups would silently skip records; the change is refused without --accept-skip"
    assert lines[-1] == "checked only, nothing was changed (revision 7)"
    meshctl("rule", "set", "--prefix", "apples", "--to", "c2", "--accept-skip")
    assert [each.options.accept_skip for each in control.requests("DryRun")] == [False]
    assert [each.options.accept_skip for each in control.requests("SetRule")] == [True]


def test_a_dry_run_tells_what_would_break_and_who_would_notice(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["DryRun"] = admin.DryRunResponse(
        findings=[
            admin.Finding(
                kind=admin.FINDING_KIND_TOPIC_ABSENT, severity=admin.SEVERITY_BREAKS, subject="apples", text="is absent"
            )
        ],
        clients=[
            admin.AffectedClient(
                gateway="gw-1", client_id="till", software="librdkafka/2.10.0", host="10.0.0.7", connections=2,
                topics=["apples", "pears"],
            )
        ],
        home_moves=[admin.HomeMove(group="shop", from_cluster="c1", to_cluster="c2")],
    )  # fmt: skip
    output = meshctl("rule", "move", "a", "--first", "--dry-run").output
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "breaks apples is absent" in lines
    assert "till librdkafka/2.10.0 10.0.0.7 gw-1 2 apples, pears" in lines
    assert "group shop: would be coordinated by c2, not by c1" in lines
    [request] = control.requests("DryRun")
    assert request.edits[0].reorder.name == "rules/a"


def test_setting_a_rule_shows_the_topics_that_moved(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["SetRule"] = admin.RuleChangeResponse(
        revision=7,
        rules=[rule("a", "apples", "c2", 1)],
        moves=[admin.TopicMove(topic="apples-1", from_cluster="c1", to_cluster="c2", partitions=3)],
        created_topics=["apples-1"],
        switch_duration=durations.of_ms(12.4),
    )
    result = meshctl("rule", "set", "--prefix", "apples", "--to", "c2", "--create-topics", "--expected-revision", "6")
    (request,) = control.requests("SetRule")
    assert request.options.create_missing_topics
    assert request.options.expected_revision == 6
    assert not request.HasField("place")
    assert "a: prefix apples -> c2 (place 1)" in result.output
    assert "topic apples-1 moved from c1 to c2 (3 partitions)" in result.output
    assert "revision 7, all gateways switched in 12 ms" in result.output


def test_a_dry_run_decides_nothing_and_says_so(control: ScriptedControl, meshctl: Meshctl) -> None:
    change = admin.RuleChangeResponse(revision=7, removed=["rules/a"])
    control.answers["DryRun"] = admin.DryRunResponse(change=change)
    result = meshctl("rule", "set", "--prefix", "apples", "--to", "c2", "--dry-run", "--first")
    (request,) = control.requests("DryRun")
    assert request.edits[0].set.place.first
    assert not control.requests("SetRule")
    assert "checked only, nothing was changed" in result.output


def test_a_rule_is_removed_and_moved_by_id_or_by_match(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["ListRules"] = admin.ListRulesResponse(rules=[rule("a", "apples", "c1", 1)], revision=1)
    assert meshctl("rule", "remove", "a").exit_code == 0
    assert meshctl("rule", "remove", "--prefix", "apples").exit_code == 0
    assert [each.name for each in control.requests("RemoveRule")] == ["rules/a", "rules/a"]
    assert meshctl("rule", "move", "--prefix", "apples", "--last").exit_code == 0
    (move,) = control.requests("ReorderRule")
    assert (move.name, move.place.last) == ("rules/a", True)
    absent = meshctl("rule", "remove", "--topic", "apples")
    assert absent.exit_code == 4
    assert "no rule has the match: topic apples" in absent.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("rule", "add", "--to", "c1"),
        ("rule", "add", "--topic", "a", "--prefix", "b", "--to", "c1"),
        ("rule", "add", "--topic", "a"),
        ("rule", "add", "--group", "a", "--nodes", "single"),
        ("rule", "add", "--group", "a", "--group-prefix", "b", "--to", "c1"),
        ("rule", "set", "--group", "a"),
        ("rule", "set", "--client-software", "a/1", "--nodes", "many"),
        ("explain",),
        ("explain", "a", "--group", "b"),
        ("rule", "add", "--topic", "a", "--to", "c1", "--first", "--before", "x"),
        ("rule", "move", "a"),
        ("rule", "move", "--first"),
        ("rule", "remove", "a", "--topic", "b"),
        ("cluster", "test"),
        ("cluster", "register", "c1", "a:1", "--producer-config", "acks"),
        ("status", "--address", "nowhere"),
        ("nonsense",),
    ],
)
def test_wrong_usage_ends_with_2_and_asks_nothing(
    control: ScriptedControl, meshctl: Meshctl, arguments: tuple[str, ...]
) -> None:
    result = meshctl(*arguments)
    assert result.exit_code == 2, result.output
    assert not control.calls


def test_every_call_says_who_asks_and_has_a_deadline(control: ScriptedControl, meshctl: Meshctl) -> None:
    meshctl("explain", "apples", "--timeout", "7")
    (call,) = control.calls
    assert "@" in call.metadata["x-mesh-actor"]
    assert call.time_left is not None
    assert 0 < call.time_left < 8  # the default is 30; grpc rounds up a little


def test_a_cluster_is_registered_with_its_properties(control: ScriptedControl, meshctl: Meshctl) -> None:
    result = meshctl(
        "cluster", "register", "c1", "a:1, b:2", "--partition-count", "3",
        "--producer-config", "sasl.password=${env:X}", "--producer-config", "a=b=c", "--allow-unreachable",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (request,) = control.requests("RegisterCluster")
    assert list(request.spec.bootstrap_servers) == ["a:1", "b:2"]
    assert dict(request.spec.producer_config) == {"sasl.password": "${env:X}", "a": "b=c"}
    assert request.allow_unreachable


def test_testing_an_unreachable_cluster_ends_with_3(control: ScriptedControl, meshctl: Meshctl) -> None:
    gone = admin.Cluster(state=admin.CLUSTER_STATE_UNREACHABLE, state_reason="connection refused")
    control.answers["TestCluster"] = admin.TestClusterResponse(cluster=gone)
    result = meshctl("cluster", "test", "c1")
    assert result.exit_code == 3
    assert "cluster c1 does not answer: connection refused" in result.stderr
    found = admin.Cluster(state=admin.CLUSTER_STATE_REACHABLE, brokers=[admin.Broker(id=1, host="h", port=9)])
    control.answers["TestCluster"] = admin.TestClusterResponse(cluster=found, topic_count=1, latency=durations.of_ms(3))
    result = meshctl("cluster", "test", "--bootstrap", "h:9")
    assert result.exit_code == 0
    assert "h:9 answered in 3 ms" in result.output
    assert "1 topic\n" in result.output


def test_explain_shows_each_rule_that_was_tried(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Explain"] = admin.ExplainResponse(
        topic="bananas",
        cluster="c2",
        revision=8,
        visit=2,
        partitions=3,
        tried=[
            admin.TriedRule(rule=rule("a", "apples", "c1", 1), reason="does not begin with apples"),
            admin.TriedRule(rule=rule("b", "bananas", "c2", 2), matched=True, reason="begins with bananas"),
        ],
        notes=["c1 did not answer"],
    )
    output = meshctl("explain", "bananas").output
    assert "bananas lives on c2 (3 partitions, its visit 2 there; revision 8)" in output
    assert "does not begin with apples" in output
    assert "note: c1 did not answer" in output
    control.answers["Explain"] = admin.ExplainResponse(topic="plums", revision=8)
    assert "plums is not routed: no rule matches" in meshctl("explain", "plums").output


def test_explain_answers_for_groups_ids_and_clients_too(control: ScriptedControl, meshctl: Meshctl) -> None:
    def answer(request: admin.ExplainRequest) -> admin.ExplainResponse:
        found = admin.ExplainResponse(revision=8, notes=["a note"])
        if request.group == "shop":
            found.cluster = "c2"
        if request.client_software:
            spec = routing.RuleSpec(
                match=routing.RuleMatch(client_software_prefix="kafkajs/"), node_view=routing.NODE_VIEW_SINGLE
            )
            found.tried.add(rule=admin.Rule(name="rules/k", spec=spec), matched=True, reason="begins so")
        return found

    control.answers["Explain"] = answer
    assert "group shop is coordinated by c2 (revision 8)" in meshctl("explain", "--group", "shop").output
    transaction = meshctl("explain", "--transactional-id", "pay").output
    assert "no rule decides about transactional id pay (revision 8)" in transaction
    assert "note: a note" in transaction
    client = meshctl("explain", "--client-software", "kafkajs/2.2.4").output
    assert "client software kafkajs/2.2.4 is shown a single node" in client


def test_explain_tells_the_name_on_the_cluster(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["Explain"] = admin.ExplainResponse(
        topic="orders", cluster="c1", upstream_topic="shop.orders", partitions=1, revision=8
    )
    assert "orders lives on c1 as shop.orders (1 partition; revision 8)" in meshctl("explain", "orders").output


def event(position: int) -> events.Event:
    change = events.RuleChange(created=rule("a", "apples", "c1", 1).spec)
    changed = events.RuleSetChanged(changes=[change], needs_hold=True)
    return events.Event(position=position, stream="rules", actor="ada@desk", reason="fruit", rule_set_changed=changed)


def test_history_asks_for_as_much_as_is_wanted(control: ScriptedControl, meshctl: Meshctl) -> None:
    entries = [
        admin.HistoryEntry(
            revision=3, actor="ada@desk", changes=["rule a: target_cluster c1 -> c2"], outcome="switched"
        ),
        admin.HistoryEntry(revision=2, changes=["rule a added: topic prefix apples -> c1"]),
    ]
    control.answers["ListHistory"] = admin.ListHistoryResponse(entries=entries, next_page_token="more")
    result = meshctl("history", "-n", "2", "--rule", "a")
    (request,) = control.requests("ListHistory")
    assert (request.page_size, request.name) == (2, "rules/a")
    assert "rule a: target_cluster c1 -> c2" in result.output
    assert "switched" in result.output


def test_watch_goes_on_where_the_stream_ended(
    control: ScriptedControl, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshctl.reopening.RECONNECT_SECONDS", 0)
    control.answers["GetStatus"] = admin.MeshStatus(last_position=4)

    def two_at_a_time(request: admin.WatchEventsRequest) -> list[events.Event]:
        return [event(request.from_position), event(request.from_position + 1)]

    control.answers["WatchEvents"] = two_at_a_time
    result = meshctl("watch", "-n", "3", "-o", "json")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["position"] for line in result.output.splitlines()] == ["5", "6", "7"]
    assert [each.from_position for each in control.requests("WatchEvents")] == [5, 7]


def test_status_and_instances_show_what_control_knows(control: ScriptedControl, meshctl: Meshctl) -> None:
    instance = events.ConsumerInstance(
        name="instances/g.i", group="g", instance_id="i", sidecar="s1", topics=["apples"]
    )
    member = admin.Member(
        name="members/gateway-1", kind=admin.MEMBER_KIND_GATEWAY, address="127.0.0.1:19092", revision=7,
        phase=admin.MEMBER_PHASE_HELD, client_count=4, lag=durations.of_ms(3.2),
    )  # fmt: skip
    control.answers["GetStatus"] = admin.MeshStatus(
        revision=7, pending_revision=8, last_position=9, published_position=8, members=[member], instances=[instance]
    )
    output = meshctl("status").output
    assert "revision 7; revision 8 is being rolled out; log at 9; 1 event not yet on mesh.events" in output
    for cell in ("gateway-1", "held", "3 ms", "apples"):
        assert cell in output
    assert "No sidecar holds a consumer." in meshctl("instances").output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(meshctl: Meshctl, shell: str) -> None:
    result = meshctl("completion", shell)
    assert result.exit_code == 0, result.output
    assert "_MESHCTL_COMPLETE" in result.output


def test_the_shell_is_offered_clusters_and_rules(control: ScriptedControl, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    from meshctl.cli import cli

    monkeypatch.setenv("MESHCTL_ADDRESS", control.address)
    spec = routing.ClusterSpec(cluster_name="c1", bootstrap_servers=["a:1"])
    control.answers["ListClusters"] = admin.ListClustersResponse(clusters=[admin.Cluster(spec=spec)])
    control.answers["ListRules"] = admin.ListRulesResponse(rules=[rule("fruit", "apples", "c1", 1)])
    complete = ShellComplete(cli, {}, "meshctl", "_MESHCTL_COMPLETE")
    assert [each.value for each in complete.get_completions(["cluster", "test"], "")] == ["c1"]
    assert [each.value for each in complete.get_completions(["rule", "move"], "fr")] == ["fruit"]
    monkeypatch.setenv("MESHCTL_TLS_FOLDER", "/nowhere")
    assert not complete.get_completions(["cluster", "test"], "")


def test_a_canary_is_begun_by_a_rule_command_and_ended_by_its_own(control: ScriptedControl, meshctl: Meshctl) -> None:
    about = ("--client-software-prefix", "sarama/", "--nodes", "single")
    shares = (("--canary", "2.5", "--canary-on", "g1", "--canary-for", "300"), ("--canary-on", "g2"), ())
    for options in shares:
        assert meshctl("rule", "set", *about, *options).exit_code == 0
    some, all_of_one, everybody = (request.options for request in control.requests("SetRule"))
    assert (some.canary.permille, list(some.canary.members), some.canary.duration.seconds) == (25, ["g1"], 300)
    assert (all_of_one.canary.permille, list(all_of_one.canary.members), all_of_one.canary.duration.seconds) == (
        1000,
        ["g2"],
        0,
    )
    assert not everybody.HasField("canary")

    assert "everybody follows" in meshctl("canary", "promote").output
    assert "given up" in meshctl("canary", "abort", "--reason", "noise").output
    assert [(each.promote, each.reason) for each in control.requests("EndCanary")] == [(True, ""), (False, "noise")]
