"""The inference engine as a setting: a group of rollouts through vLLM's interfaces, and every wrong choice in words."""

from __future__ import annotations

import errno
import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
import safetensors.torch
from django.core.management import CommandError, call_command
from django.test import Client
from obstore.store import ObjectStore

from composer_web.core import inference
from composer_web.core.artifacts import artifacts
from composer_web.env import REPOSITORY, env
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group
from composer_web.rollouts.worker import accepting, loop
from composer_web.rollouts.worker.execution import deployed_at, execute
from composer_web.runs import defaults
from composer_web.runs import services as run_services
from composer_web.runs.models import Run
from composer_web.runs.paths import served_weights, weights_folder
from composer_web.tasks.services import build_procedural
from tests.trainer.inference.conftest import router, vllm_double
from tests.web.making import SMALL, train_here
from trainer.config import RLConfig, RunConfig
from trainer.inference.contract import DeploymentSpec, InferenceError, InferenceRefused
from trainer.inference.embedded.serving.process import EmbeddedServer, ServerProcess
from trainer.rollouts import ending
from trainer.types import TrainGroup
from trainer.weights import WeightStore

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
BASE = REPOSITORY / "policies" / "base"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of a server in front of a double of vLLM that was started with the shipped policy, and of the double."""
    root = tmp_path_factory.mktemp("vllm")
    with vllm_double(BASE, root / "double") as vllm:
        arguments = ("--servers", vllm, "--poll-seconds", "0.05")
        with ServerProcess("trainer.inference.vllm.server", root / "data", arguments=arguments) as server:
            yield server.url, vllm


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """choose(engine, url): the settings of this process until the test ends."""

    def choose(engine: str, url: str) -> None:
        monkeypatch.setattr(env(), "inference_engine", engine)
        monkeypatch.setattr(env(), "inference_url", url)
        monkeypatch.setattr(loop, "current_loop", None)  # the episode loop keeps its client
        deployed_at.clear()

    return choose


@pytest.fixture
def base_run(db: None) -> Run:
    """A running RL run of the shipped policy with version 0 published."""
    return published_run(SMALL)


def published_run(stage: RLConfig) -> Run:
    import_base(path=BASE, name="base", toy=True)
    build_procedural(n_train=4, n_held_out=1)
    run = run_services.create_run(config=RunConfig(name="engine", seed=1, stage=stage))
    run_services.start_run(run=run)
    run_services.mark_running(run=run, owner="trainer@test")
    state = safetensors.torch.load_file(BASE / "model.safetensors")
    WeightStore(weights_folder(run), dtype="float32").publish(0, state)
    run_services.record_version(run=run, version=0)
    services.pump(run_id=run.pk)
    return run


def test_a_group_of_rollouts_through_vllm(
    base_run: Run, front: tuple[str, str], choose: Callable[[str, str], None]
) -> None:
    choose("vllm", front[0])
    group = Group.objects.filter(run=base_run).order_by("pk")[0]
    assert execute(group.pk) == "accepted"
    rollouts = list(group.rollouts.all())
    assert len(rollouts) == SMALL.group_size
    assert all(r.verdict in ("passed", "failed") and r.oldest_version == r.newest_version == 0 for r in rollouts)
    assert all(r.output_tokens > 0 and r.turns > 0 for r in rollouts)
    health = inference.health()
    assert [d.name for d in health.deployments] == [f"run-{base_run.pk}"]
    assert health.deployments[0].generated_tokens >= sum(r.output_tokens for r in rollouts)


def test_a_rollout_that_cannot_be_stored_costs_neither_its_group_nor_a_second_try_of_it(
    db: None, choose: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, engine: EmbeddedServer
) -> None:
    """The disk fails at one file of one of four, at every try, and at the training data of the group once."""
    monkeypatch.setattr(ending, "STORE_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(accepting, "STORE_PAUSES", (0.0, 0.0))
    run = published_run(SMALL.model_copy(update={"group_size": 4}))
    group = Group.objects.filter(run=run).order_by("pk")[0]
    failed: Counter[str] = Counter()
    put = obstore.put

    def failing(store: ObjectStore, path: str, data: bytes) -> None:
        name = Path(path).name
        if name == "1.json.zst" or (name == "train.json.zst" and not failed[name]):
            failed[name] += 1
            raise OSError(errno.EIO, "Input/output error")
        put(store, path, data)

    monkeypatch.setattr(obstore, "put", failing)
    choose("embedded", engine.url)
    assert execute(group.pk) == "accepted"
    group.refresh_from_db()
    assert (group.state, group.attempts) == ("accepted", 1) and failed == {"1.json.zst": 3, "train.json.zst": 1}
    rows = {rollout.sample: rollout for rollout in group.rollouts.all()}
    assert (rows[1].verdict, rows[1].outcome, rows[1].reward, rows[1].artifact_key) == (
        "infra_error", "store_failed", None, ""
    )  # fmt: skip
    assert all(rows[n].verdict in ("passed", "failed") and rows[n].artifact_key for n in (0, 2, 3))
    learned = artifacts().get_model(group.train_key, TrainGroup)
    assert learned.rewards == [rows[n].reward for n in (0, 2, 3)]


def test_a_router_fits_the_setting_and_its_engines_are_shown(
    choose: Callable[[str, str], None], people: dict[str, Any], engine: EmbeddedServer, tmp_path: Path
) -> None:
    with router(tmp_path / "router", [engine.url]) as before:
        choose("embedded", before.url)
        assert inference.health().engine == "router"
        client = Client()
        client.force_login(people["viewer"])
        shown = client.get("/system/").content.decode()
        assert "1 of 1 servers answer" in shown and engine.url in shown


def test_the_engine_is_shown_on_page_api_and_command_line(
    front: tuple[str, str],
    choose: Callable[[str, str], None],
    people: dict[str, Any],
    bearer: Callable[..., dict[str, str]],
) -> None:
    choose("vllm", front[0])
    client = Client()
    client.force_login(people["viewer"])
    shown = client.get("/system/").content.decode()
    assert "1 of 1 servers answer" in shown and front[1] in shown and f"started with {BASE}" in shown
    answer = Client().get("/api/v1/health", headers=bearer("viewer")).json()
    (check,) = [c for c in answer["checks"] if c["name"] == "inference"]
    assert check["ok"] and check["detail"]["engine"] == "vllm" and check["detail"]["servers"][0]["url"] == front[1]
    out = io.StringIO()
    with pytest.raises(CommandError, match="not everything answers"):  # no workers run here
        call_command("health", stdout=out)
    assert "ok   inference  vllm, 1 of 1 servers answer" in out.getvalue()


def test_auto_takes_the_engine_that_answers(
    front: tuple[str, str], choose: Callable[[str, str], None], people: dict[str, Any]
) -> None:
    choose("auto", front[0])
    defaults._engines.clear()
    assert inference.health().engine == "vllm"
    assert defaults.serving_engine() == ("vllm", f"the server at {front[0]}")
    defaults._engines.clear()
    client = Client()
    client.force_login(people["viewer"])
    assert "vllm (OPENCOMPOSER_INFERENCE_ENGINE is auto)" in client.get("/system/").content.decode()


@pytest.mark.parametrize(
    ("engine", "place", "words"),
    [
        ("embedded", "front", r"OPENCOMPOSER_INFERENCE_ENGINE is 'embedded' and the server at \S+ is 'vllm': set"),
        ("vllm", "raw", r"another kind of server there\? OPENCOMPOSER_INFERENCE_URL must name .*never vLLM itself"),
        ("vllm", "nowhere", "does not answer .*is it up.*OPENCOMPOSER_INFERENCE_URL says where it is"),
    ],
)
def test_a_wrong_choice_names_the_setting_and_the_remedy(
    front: tuple[str, str],
    choose: Callable[[str, str], None],
    people: dict[str, Any],
    free_port: int,
    engine: str,
    place: str,
    words: str,
) -> None:
    choose(engine, {"front": front[0], "raw": front[1], "nowhere": f"http://127.0.0.1:{free_port}"}[place])
    with pytest.raises(InferenceError, match=words):
        inference.deploy(DeploymentSpec(name="x", policy_dir=str(BASE)))
    client = Client()
    client.force_login(people["viewer"])
    assert "OPENCOMPOSER_INFERENCE_" in client.get("/system/").content.decode()
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("health", stdout=out)
    assert "FAIL inference" in out.getvalue() and "OPENCOMPOSER_INFERENCE_" in out.getvalue()


def test_a_group_meets_a_wrong_choice_as_an_infrastructure_error_with_its_cause(
    base_run: Run, front: tuple[str, str], choose: Callable[[str, str], None]
) -> None:
    choose("embedded", front[0])
    group = Group.objects.filter(run=base_run).order_by("pk")[0]
    assert "failed (will be tried again)" in execute(group.pk)
    group.refresh_from_db()
    assert "OPENCOMPOSER_INFERENCE_ENGINE" in group.cause and group.infra_errors == 1
    assert not group.rollouts.exclude(verdict="").exists()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        (
            "num_speculative_tokens",
            3,
            "sampling.num_speculative_tokens is 3, and vLLM does not draft with a policy's own head; leave it empty, or",
        ),
        ("top_k", 40, "sampling.top_k is 40: the open tokens of each step"),
        ("top_p", 0.9, "sampling.top_p is 0.9: the open tokens of each step"),
    ],
)
def test_a_run_that_asks_what_vllm_cannot_do_fails_before_a_prompt_is_spent(
    policy: Policy,
    make_suite: Callable[..., Any],
    front: tuple[str, str],
    choose: Callable[[str, str], None],
    setting: str,
    value: float,
    words: str,
) -> None:
    """In words that name the field, what was found and the remedy; the same run goes with the embedded engine."""
    choose("vllm", front[0])
    make_suite()
    stage = SMALL.model_copy(update={"sampling": SMALL.sampling.model_copy(update={setting: value})})
    run = run_services.create_run(config=RunConfig(name="asks", seed=3, stage=stage))
    run_services.start_run(run=run)
    train_here(run)
    assert run.state == "failed" and "the inference engine refuses this policy" in run.failure
    assert words in run.failure and "OPENCOMPOSER_INFERENCE_ENGINE=embedded" in run.failure
    assert not run.groups.exists()
    spec = DeploymentSpec.model_validate({"name": "x", "policy_dir": str(BASE), setting: value})
    with pytest.raises(InferenceRefused, match=f"sampling.{setting}"):
        inference.deploy(spec)
    assert "x" not in [d.name for d in inference.health().deployments]


def test_a_run_that_repeats_experts_tells_the_engine_so_and_no_other_does(
    policy: Policy, make_suite: Callable[..., Any]
) -> None:
    """An engine that names none can then refuse it (`tests/trainer/inference/vllm/test_vllm_experts.py`)."""
    make_suite()
    for index, wanted in enumerate((True, False)):
        stage = SMALL.model_copy(
            update={"sampling": SMALL.sampling.model_copy(update={"enable_router_replay": wanted})}
        )
        run = run_services.create_run(config=RunConfig(name=f"experts {index}", seed=3, stage=stage))
        assert served_weights(run).experts is wanted


def test_a_run_whose_policy_the_engine_cannot_hold_fails_before_a_prompt_is_spent(
    draft: Run, policy: Policy, front: tuple[str, str], choose: Callable[[str, str], None], tmp_path: Path
) -> None:
    choose("vllm", front[0])
    run_services.start_run(run=draft)
    train_here(draft)
    assert draft.state == "failed"
    assert "the inference engine refuses this policy" in draft.failure
    assert "model_type is tiny there and qwen3 in the server" in draft.failure and "--model" in draft.failure
    assert not draft.groups.exists()
    with pytest.raises(InferenceRefused):
        inference.deploy(DeploymentSpec(name="x", policy_dir=str(tmp_path / "policy")))
