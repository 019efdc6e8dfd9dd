"""docker-compose.yml and Dockerfile: valid by the Compose specification, and in step with the code."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from composer_web.core.queue.queues import QUEUES
from composer_web.env import Env
from composer_web.env.addresses import MIRRORS, mirror_targets
from composer_web.runs.management.commands.mirror import Command
from sandbox.backends.capacity import SETTING as SANDBOXES
from scripts.stack.layout import REPOSITORY
from trainer.inference.discovery import ReplicaSpec, fixed_replicas, replica_arguments
from trainer.rewards.plugins import FOLDER

COMPOSE = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OVERRIDES = ("ports", "nfs", "worker")
LOCK = (REPOSITORY / "requirements.lock").read_text()
SCHEMA = json.loads(files("check_jsonschema.builtin_schemas").joinpath("vendor/compose-spec.json").read_text())


def test_the_file_follows_the_compose_specification() -> None:
    jsonschema.validate(COMPOSE, SCHEMA)


@pytest.mark.parametrize("change", [{"depend_on": ["x"]}, {"ports": {"a": 1}}, {"restart": 5}])
def test_the_specification_refuses_what_is_misspelt(change: dict[str, Any]) -> None:
    broken = {**COMPOSE, "services": {**SERVICES, "web": {**SERVICES["web"], **change}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_dependencies_and_volumes_exist() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"], name


def test_a_service_never_waits_for_one_of_a_profile_that_may_be_off() -> None:
    for name, service in SERVICES.items():
        for other in service.get("depends_on", {}):
            assert set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", [])), name


def test_each_queue_has_exactly_one_kind_of_worker() -> None:
    served = [
        queue
        for service in SERVICES.values()
        if "worker" in (command := service.get("command", [])) and "gpu" not in service.get("profiles", [])
        for queue in command[command.index("--queues") + 1].replace("${TRAIN_QUEUE:-train}", "train").split(",")
    ]
    assert sorted(served) == sorted(QUEUES)


def test_every_setting_is_one_that_the_product_reads() -> None:
    known = {f"OPENCOMPOSER_{name}".upper() for name in Env.model_fields} | {FOLDER, SANDBOXES}
    for name, service in SERVICES.items():
        assert {key for key in service.get("environment", {}) if key.startswith("OPENCOMPOSER")} <= known, name
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    assert set(re.findall(r"OPENCOMPOSER_\w+", dockerfile)) <= known


OF_THE_IMAGE = {
    "data", "host", "port",  # as the image has them
    "debug",  # never in production
    "vllm_urls",  # the argument of the server in front of vLLM
    "engines",  # for `make up`; here the service is scaled
    "speculate",  # the argument of the engine's service
    "mirrors",  # services of their own
    "git_roots",  # folders of a machine, which containers do not see
}  # fmt: skip


def test_every_setting_reaches_every_container_of_the_product() -> None:
    """A new setting fails here until the file hands it on: a variable that is set and heeded by nobody helps nobody."""
    wanted_by = {f"OPENCOMPOSER_{name}".upper() for name in Env.model_fields.keys() - OF_THE_IMAGE} | {
        FOLDER,
        SANDBOXES,
    }
    wanted_by |= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"}
    ours = {name: service for name, service in SERVICES.items() if service.get("image") == "opencomposer"}
    assert len(ours) > 8
    for name, service in ours.items():
        assert wanted_by <= service["environment"].keys(), name
    for name, value in SERVICES["web"]["environment"].items():
        assert value is None or "$" in value or name == "OPENCOMPOSER_DATA", (
            f"{name} is fixed: who runs this cannot set it"
        )
    for name in OF_THE_IMAGE:
        assert name in Env.model_fields


def test_only_the_pages_are_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"web"}
    assert all(port.startswith("127.0.0.1:") for port in published["web"])


class Reset:
    """`!reset`: Compose drops what the files before have there."""


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!reset", lambda loader, node: Reset())


def override(name: str) -> dict[str, Any]:
    """An override file as it is; `!reset` needs a tag that plain YAML does not know."""
    found: dict[str, Any] = yaml.load((REPOSITORY / f"docker-compose.{name}.yml").read_text(), Loader)
    return found


def merged(*names: str) -> dict[str, Any]:
    """The files together, as Compose merges what is in these: maps by key, ports by addition, `!reset` by removal."""

    def into(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        out = dict(base)
        for key, value in more.items():
            if isinstance(value, Reset):
                out.pop(key, None)
            elif isinstance(value, dict) and isinstance(out.get(key), dict):
                out[key] = into(out[key], value)
            elif isinstance(value, list) and key == "ports":
                out[key] = [*out.get(key, []), *value]
            else:
                out[key] = value
        return out

    whole = COMPOSE
    for name in names:
        whole = into(whole, {key: value for key, value in override(name).items() if not key.startswith("x-")})
    return whole


@pytest.mark.parametrize("names", [("ports",), ("ports", "nfs"), ("nfs", "worker")])
def test_overrides_follow_the_specification_and_change_only_what_is_there(names: tuple[str, ...]) -> None:
    whole = merged(*names)
    jsonschema.validate(whole, SCHEMA)
    assert whole["services"].keys() == SERVICES.keys() and whole["volumes"].keys() == COMPOSE["volumes"].keys()


def test_a_second_host_starts_its_worker_alone_and_speaks_to_the_first() -> None:
    services = merged("nfs", "worker")["services"]
    for name in ("worker-train", "worker-train-gpu"):
        worker, environment = services[name], services[name]["environment"]
        assert "depends_on" not in worker, "Postgres would start here as well"
        assert worker["build"] == ".", "nobody else builds the image there"
        for setting in ("DATABASE_URL", "REDIS_URL", "INFERENCE_URL"):
            assert environment[f"OPENCOMPOSER_{setting}"].startswith(f"${{OPENCOMPOSER_{setting}:?"), "no local default"
        assert environment["OPENCOMPOSER_DATABASE_PASSWORD"] == "${POSTGRES_PASSWORD:?set it in .env}"
        assert worker["volumes"] == ["data:/data"] and worker["command"] == SERVICES[name]["command"]
    assert merged("nfs")["volumes"]["data"]["driver_opts"]["type"] == "nfs"


def test_services_are_published_to_other_hosts_only_by_the_override_and_where_it_is_told() -> None:
    services = override("ports")["services"]
    assert services.keys() == {"postgres", "valkey", "router", "inference-vllm"}
    for service in services.values():
        assert service.keys() == {"ports"}
        assert all(port.startswith("${BIND_ADDRESS:?") for port in service["ports"]), "no address is the default"
    ports = {port.rpartition("}:")[2] for service in services.values() for port in service["ports"]}
    assert ports == {"5432:5432", "6379:6379", "8100:8100"}


def test_the_guide_to_a_second_host_names_the_files_and_what_they_ask_for() -> None:
    text = (REPOSITORY / "docs" / "guides" / "operations.md").read_text().partition("### A second GPU host")[2]
    for name in OVERRIDES:
        assert f"docker-compose.{name}.yml" in text
        wanted = set(re.findall(r"\$\{(\w+):\?", (REPOSITORY / f"docker-compose.{name}.yml").read_text()))
        assert wanted and all(variable in text for variable in wanted), (name, wanted)


def test_no_password_has_a_default() -> None:
    text = (REPOSITORY / "docker-compose.yml").read_text()
    for name in ("POSTGRES_PASSWORD", "VALKEY_PASSWORD", "OPENCOMPOSER_SECRET_KEY"):
        assert set(re.findall(rf"\$\{{{name}(.*?)\}}", text)) == {":?set it in .env"}


def test_the_profiles_add_a_trainer_and_an_inference_server_each() -> None:
    by_profile: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        for profile in service.get("profiles", []):
            by_profile.setdefault(profile, set()).add(name)
    assert {profile: by_profile[profile] for profile in by_profile.keys() - MIRRORS.keys()} == {
        "cpu": {"worker-train", "router", "engine"}, "gpu": {"worker-train-gpu", "inference-vllm", "vllm"},
        "gpu-engine": {"worker-train-gpu", "router", "engine-gpu"},
    }  # fmt: skip


def test_each_kind_of_mirror_is_a_service_of_its_own_profile() -> None:
    parser = Command().create_parser("manage.py", "mirror")
    for kind, where in (
        ("tensorboard", "/data/tensorboard"),
        ("mlflow", "http://mlflow:5000"),
        ("wandb", "opencomposer"),
    ):
        service = SERVICES[f"mirror-{kind}"]
        assert service["profiles"] == [kind] and service["volumes"] == SERVICES["web"]["volumes"]
        given = parser.parse_args([re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in service["command"][3:]])
        assert (service["command"][:3], given.kind, given.to) == (["python", "manage.py", "mirror"], kind, where)
        assert not given.once and mirror_targets(f"{kind}={where}")
        assert re.search(rf"^{kind}(-skinny)?==", LOCK, re.MULTILINE), "the image has the tool"
    assert {name for name in SERVICES if name.startswith("mirror-")} == {f"mirror-{kind}" for kind in MIRRORS}


def test_the_gpu_profile_serves_the_contract_in_front_of_vllm_under_the_name_that_everybody_asks() -> None:
    front, vllm = SERVICES["inference-vllm"], SERVICES["vllm"]
    url = SERVICES["web"]["environment"]["OPENCOMPOSER_INFERENCE_URL"]
    assert "http://inference:8100" in url and front["networks"]["default"]["aliases"] == ["inference"]
    fixed, file = replicas("inference-vllm")
    assert front["command"][-1] == "8100" and fixed == [ReplicaSpec(url="http://vllm:8000")]
    assert str(file).startswith("/data/")
    assert vllm["command"][vllm["command"].index("--port") + 1] == "8000"
    assert {"--enable-scale-out", "--logprobs-mode"} <= set(vllm["command"])
    assert vllm["environment"]["VLLM_SERVER_DEV_MODE"] == "1"
    # Not by the plain flag: vLLM does not start with it on a dense policy.
    given = vllm["command"][vllm["command"].index("--aux-output-config") + 1]
    for text, on in ((r"\1", False), ("true", True)):
        told = re.sub(r"\$\{VLLM_ROUTED_EXPERTS:-(\w+)\}", text, given)
        assert json.loads(told) == {"enable_return_routed_experts": on}
    assert "VLLM_ROUTED_EXPERTS" in (REPOSITORY / "docker-compose.yml").read_text().partition("\nname:")[0]
    assert vllm["volumes"] == front["volumes"]  # weights are handed over as paths


def replicas(name: str) -> tuple[list[ReplicaSpec], Path | None]:
    """What the command of a service in front of others says of them, as the server reads it."""
    words = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in SERVICES[name]["command"][3:]]
    parser = argparse.ArgumentParser()
    replica_arguments(parser)
    given, _ = parser.parse_known_args(words)
    return fixed_replicas(parser, given), given.replicas


def test_a_router_stands_before_every_replica_of_the_engine_under_the_name_that_everybody_asks() -> None:
    router, engine, on_gpu = SERVICES["router"], SERVICES["engine"], SERVICES["engine-gpu"]
    assert router["networks"]["default"]["aliases"] == ["inference"] and "--port=8100" in router["command"]
    fixed, file = replicas("router")
    assert fixed == [ReplicaSpec(url="http://engine:8100", each=True)] and str(file).startswith("/data/")
    for service in (engine, on_gpu):
        assert "container_name" not in service and "ports" not in service, "it would not scale"
        assert {"--host=0.0.0.0", "--port=8100"} <= set(service["command"])
        # What a replica remembers is its own: the data volume is everybody's, and the router keeps its memory there.
        assert "--data=/tmp/engine" in service["command"] and service["volumes"] == router["volumes"]
    assert on_gpu["networks"]["default"]["aliases"] == ["engine"]
    assert not {"inference"} & set(SERVICES), "a service of this name would answer beside the router"


def test_gpus_are_reserved_only_where_a_profile_asks_for_them() -> None:
    """A machine without any starts everything else."""

    def reserved(service: dict[str, Any]) -> list[dict[str, Any]]:
        resources = service.get("deploy", {}).get("resources", {})
        return list(resources.get("reservations", {}).get("devices", []))

    with_gpu = {name for name, service in SERVICES.items() if reserved(service)}
    assert with_gpu == {"worker-train-gpu", "engine-gpu", "vllm"}
    for name in with_gpu:
        assert set(SERVICES[name]["profiles"]) <= {"gpu", "gpu-engine"}
        assert all(device["capabilities"] == ["gpu"] for device in reserved(SERVICES[name]))
    assert reserved(SERVICES["engine-gpu"])[0]["count"] == "all"  # each takes one of them: it must see them all
    asked = SERVICES["engine-gpu"]["environment"]["OPENCOMPOSER_ENGINE_DEVICE"]
    assert asked == "${OPENCOMPOSER_ENGINE_DEVICE:-cuda}"


def test_vllm_and_the_trainer_share_one_gpu_unless_the_settings_at_the_head_give_them_two() -> None:
    """A machine with one GPU runs both; vLLM alone would take nine tenths of its memory."""

    def gpu(name: str) -> str:
        (device,) = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device.keys() == {"driver", "device_ids", "capabilities"}, "named: a count always begins with the first"
        return str(device["device_ids"][0])

    words = SERVICES["vllm"]["command"]
    share = words[words.index("--gpu-memory-utilization") + 1]
    settings = {"TRAINER_GPU": gpu("worker-train-gpu"), "VLLM_GPU": gpu("vllm"), "VLLM_GPU_MEMORY": share}
    defaults = {}
    for name, text in settings.items():
        found = re.fullmatch(rf"\$\{{{name}:-(.+)\}}", text)
        assert found, f"{text} does not read {name}"
        defaults[name] = found[1]
    assert defaults["TRAINER_GPU"] == defaults["VLLM_GPU"] == "0", "the one that every machine has"
    assert 0.2 < float(defaults["VLLM_GPU_MEMORY"]) <= 0.5, "as much is left to the trainer"
    head = (REPOSITORY / "docker-compose.yml").read_text().partition("\nname:")[0]
    assert all(f"{name}=" in head for name in settings)


def test_vllm_gets_our_extension_as_a_file_that_needs_nothing_else_of_the_product(tmp_path: Path) -> None:
    vllm = SERVICES["vllm"]
    (given,) = vllm["configs"]
    source = REPOSITORY / COMPOSE["configs"][given["source"]]["file"]
    named = vllm["command"][vllm["command"].index("--worker-extension-cls") + 1]
    module, _, name = named.rpartition(".")
    assert given["target"] == f"{vllm['environment']['PYTHONPATH']}/{module}.py"
    (tmp_path / f"{module}.py").write_bytes(source.read_bytes())
    code = f"import {module}, sys; {module}.{name}.opencomposer_apply; assert 'trainer' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


def test_the_image_is_built_from_files_that_exist_and_runs_as_a_user() -> None:
    lines = [line for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if line and line[0].isupper()]
    instructions = [line.split() for line in lines]
    for instruction in instructions:
        if instruction[0] == "COPY":
            assert all((REPOSITORY / source).exists() for source in instruction[1:-1]), instruction
    users = [instruction[1] for instruction in instructions if instruction[0] == "USER"]
    assert users[-1] not in ("root", "0")
    copied = {source for instruction in instructions if instruction[0] == "COPY" for source in instruction[1:-1]}
    assert {"sandbox", "trainer", "composer_web", "requirements.lock"} <= copied
