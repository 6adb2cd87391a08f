"""The files in docker/ are what they say: no engine runs here, so structure, configuration and commands are checked."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.images import instructions
from helpers.paths import ROOT
from sketchstream.cli.app import COMMANDS
from sketchstream.config import resources
from sketchstream.config.loader import Config
from sketchstream.files import require_private
from sketchstream.items.key import Key
from sketchstream.serve.clients.access import Access, TokenFile

DOCKER = ROOT / "docker"


def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


def manifests(name: str = "worker.yaml") -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((DOCKER / "kubernetes" / name).read_text())
    return {document["kind"]: document for document in documents}


def checked(text: str, tmp_path: Path) -> Config:
    """The configuration, its key put where the container would find it."""
    Key.generate().save(tmp_path / "key")
    text = re.sub(r'file = "/run/secrets/[^"]*"', 'file = "key"', text)
    config = Config.parse(text, tmp_path / "sketchstream.toml")
    config.load_key()
    return config


def test_compose_has_broker_topics_workers_service_and_monitoring() -> None:
    services = compose()["services"]
    ours = {"topics", "generator", "worker", "serve"}
    assert set(services) == ours | {"broker", "input-topic", "prometheus", "grafana"}
    for name in ours:
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["user"].startswith("${SKETCHSTREAM_USER:-10001")
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["worker"]["depends_on"]["topics"]["condition"] == "service_completed_successfully"
    broker = services["broker"]["environment"]
    named = {entry.split(":")[0] for entry in broker["KAFKA_LISTENERS"].split(",")}
    protocols = {entry.split(":")[0] for entry in broker["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    assert named == protocols == {"CONTROLLER", "PLAINTEXT", "PLAINTEXT_HOST"}
    assert all(isinstance(value, str) for value in broker.values())
    assert all(":" not in image.split("/")[0] and "." not in image.split("/")[0] for image in images(compose()))


def images(document: dict[str, Any]) -> list[str]:
    return [service["image"] for service in document["services"].values()]


def test_only_loopback_is_published() -> None:
    for service in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_containers_run_commands_that_exist() -> None:
    services = compose()["services"]
    for name, service in services.items():
        if service["image"] == "sketchstream" and "entrypoint" not in service:
            verb = service["command"][0]
            assert verb in COMMANDS or service.get("profiles") == [verb], f"{name} runs {verb}"
    for kind in ("Job", "StatefulSet"):
        container = manifests()[kind]["spec"]["template"]["spec"]["containers"][0]
        assert container["args"][0] in COMMANDS


def test_configurations_are_valid(tmp_path: Path) -> None:
    for number, text in enumerate(
        [(DOCKER / "sketchstream.toml").read_text(), manifests()["ConfigMap"]["data"]["sketchstream.toml"]]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = checked(text, folder)
        assert config.from_kafka
        assert config.checks_partitions
        assert (config.privacy.diagnostics, config.privacy.diagnostics_public) == ("off", False)
        assert config.privacy.max_epsilon == "1"
        resources.check_memory(config, 4)


def test_compose_topics_are_those_of_the_configuration(tmp_path: Path) -> None:
    config = checked((DOCKER / "sketchstream.toml").read_text(), tmp_path)
    command = compose()["services"]["input-topic"]["command"]
    assert command[command.index("--topic") + 1] == config.input.topic


def test_pods_are_static_members_with_probes_and_no_rights() -> None:
    found = manifests()
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "SKETCHSTREAM__KAFKA__GROUP_INSTANCE_ID"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["terminationGracePeriodSeconds"] >= 30
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels
    assert found["StatefulSet"]["spec"]["serviceName"] == found["Service"]["metadata"]["name"]


def test_the_variable_of_the_pods_sets_static_membership(tmp_path: Path) -> None:
    text = (DOCKER / "sketchstream.toml").read_text().replace('file = "/run/secrets/sketch_key"', 'file = "key"')
    config = Config.parse(
        text, tmp_path / "c.toml", {"SKETCHSTREAM__KAFKA__GROUP_INSTANCE_ID": "sketchstream-worker-0"}
    )
    assert config.kafka["group.instance.id"] == "sketchstream-worker-0"


def test_the_image_copies_what_exists_and_does_not_run_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (DOCKER.parent / source).exists(), f"{source} is copied but does not exist"
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert text.index("USER 10001") < text.index("ENTRYPOINT")
    stages = [rest for name, rest in instructions(text) if name == "FROM"]
    assert len(stages) == 2
    assert all("@" in stage or ":3.11-slim-bookworm" in stage for stage in stages)


def test_what_compose_mounts_and_its_secrets_exist(tmp_path: Path) -> None:
    document = compose()
    for service in document["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (DOCKER / source).is_file(), source
        for name in service.get("secrets", []):
            assert name in document["secrets"]
    made = {Path(one["file"]).name for one in document["secrets"].values()}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for _ in range(2):  # the second time nothing changes
        subprocess.run(["sh", DOCKER / "secrets.sh", tmp_path / "secrets"], check=True, env=environment)
    assert {one.name for one in (tmp_path / "secrets").iterdir()} == made
    assert all(one.stat().st_mode & 0o077 == 0 for one in (tmp_path / "secrets").iterdir())
    token = (tmp_path / "secrets" / "metrics.token").read_text()
    assert Access(TokenFile(tmp_path / "secrets" / "tokens.toml", ["minutes"]).read(), None).match(token) is not None
    Key.load(tmp_path / "secrets" / "sketch.key")


def test_what_the_generator_sends_is_what_the_configuration_reads(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generator", DOCKER / "generator.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    key, value = generator.event(random.Random(1), 50_000, 1_700_000_000_000)
    config = checked((DOCKER / "sketchstream.toml").read_text(), tmp_path)
    event = json.loads(value)
    assert event[config.input.item].encode() == key, "the topic is keyed by the item"
    assert event[config.input.time] == 1_700_000_000_000


@pytest.mark.parametrize("name", ["worker.yaml", "serve.yaml"])
def test_pods_are_restricted_and_reach_only_what_they_need(name: str) -> None:
    """The rules of Kubernetes' restricted profile, and network policies in both directions."""
    found = manifests(name)
    pods = [found[kind]["spec"]["template"]["spec"] for kind in ("Job", "StatefulSet") if kind in found]
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            assert ":" in container["image"]
            assert not [one for one in container.get("env", []) if "value" in one], "secrets are files"
    policy = found["NetworkPolicy"]["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert all(rule.get("from") for rule in policy["ingress"])
    assert all(rule.get("to") for rule in policy["egress"])
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def tool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of the environment."""
    program = Path(sys.executable).parent / str(words[0])
    return subprocess.run([program, *map(str, words[1:])], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "file", "wrong"),
    [
        (("hadolint", "--failure-threshold", "info"), "Dockerfile", ("USER 10001:10001", "RUN cd /tmp && sudo ls")),
        (
            ("check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
            "compose.yaml",
            ("restart: unless-stopped", "restarts: unless-stopped"),
        ),
        (("kubernetes-validate", "--strict", "-k", "1.31"), "kubernetes/worker.yaml", ("maxUnavailable", "maxMissing")),
        (("kubernetes-validate", "--strict", "-k", "1.31"), "kubernetes/serve.yaml", ("minAvailable", "minThere")),
    ],
    ids=["hadolint", "compose", "worker", "serve"],
)
def test_the_tools_of_their_field_accept_the_files_and_refuse_broken_ones(
    words: tuple[str, ...], file: str, wrong: tuple[str, str], tmp_path: Path
) -> None:
    good = tool(*words, DOCKER / file)
    assert good.returncode == 0, good.stdout + good.stderr
    text = (DOCKER / file).read_text()
    assert wrong[0] in text
    broken = tmp_path / Path(file).name
    broken.write_text(text.replace(*wrong))
    assert tool(*words, broken).returncode != 0


YAML_RULES = ("--strict", "-d", "{extends: default, rules: {line-length: disable, document-start: disable}}")
CHECKED = [
    *((("yamllint", *YAML_RULES), one, "kind: twice\nkind: twice\n") for one in sorted(DOCKER.rglob("*.yaml"))),
    *((("shellcheck",), one, "\nrm -r $1/*\n") for one in sorted(DOCKER.rglob("*.sh"))),
]
"""Tool, file, and what must not be added to it."""


@pytest.mark.parametrize(
    ("words", "file", "wrong"), CHECKED, ids=[str(one.relative_to(DOCKER)) for _, one, _ in CHECKED]
)
def test_no_yaml_file_and_no_script_has_a_mistake_that_tools_find(
    words: tuple[str, ...], file: Path, wrong: str, tmp_path: Path
) -> None:
    good = tool(*words, file)
    assert good.returncode == 0, good.stdout + good.stderr
    broken = tmp_path / file.name
    broken.write_text(file.read_text() + wrong)
    assert tool(*words, broken).returncode != 0


def test_the_pod_of_the_service_has_tokens_a_disk_probes_and_no_rights(tmp_path: Path) -> None:
    found = manifests("serve.yaml")
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] in COMMANDS
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["terminationGracePeriodSeconds"] > 10
    claims = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {one["name"] for one in pod["volumes"]} | {one["metadata"]["name"] for one in claims}
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    text = found["ConfigMap"]["data"]["sketchstream.toml"]
    assert "/run/secrets/tokens/tokens.toml" in text
    assert mounted["tokens"] == "/run/secrets/tokens"
    config = checked(text, tmp_path)
    assert Path(config.serve.database).parent == Path(mounted["database"])
    (tokens,) = (one["secret"] for one in pod["volumes"] if one["name"] == "tokens")
    require_private(tokens["defaultMode"], "tokens", "")
