"""Facts about a configured run's policy, suite, engine and train workers, and what follows from them.

The facts of the engine and of suites are kept for a few seconds: the form asks with every keystroke.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from django.db.models import F
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Length
from pydantic import ValidationError

from composer_web.core import inference
from composer_web.core.errors import UserError
from composer_web.core.models import WorkerHeartbeat
from composer_web.env import env
from composer_web.policies.selectors import Weights, resolve
from composer_web.tasks.models import Suite
from trainer.config import RLConfig, RunConfig
from trainer.config.auto import AUTO, with_values
from trainer.defaults import Choice, Derived, Facts, Problem, derive, preflight
from trainer.defaults.derive import SUMMARY_TOKENS
from trainer.defaults.facts import read_model
from trainer.defaults.opening import opening_tokens
from trainer.inference.contract import InferenceError

ENGINE_SECONDS = 10.0
"""Seconds for which the engine's limits are kept."""
PATIENCE = 1.0
"""Timeout of the inference server in seconds."""
PROFILE = "full"
"""Profile whose tools are counted; all profiles describe the same ones."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_engines: dict[str, tuple[float, int, int, str]] = {}
"""(time, longest context, bytes of KV cache, kind) by the inference server's address; 0 or empty where it does not say."""


def facts_of(config: RunConfig, weights: Weights | None = None) -> Facts:
    """What is known for a run. Raises UserError if there is no such policy."""
    weights = weights or resolve(config.policy)
    stage = config.stage
    context, kv_bytes = engine_limits() if isinstance(stage, RLConfig) else (0, 0)
    if isinstance(stage, RLConfig) and stage.sampling.kv_cache_mib:
        kv_bytes = stage.sampling.kv_cache_mib << 20
    suite = stage.suite if isinstance(stage, RLConfig) and not stage.sessions.channel else ""
    held_out = stage.eval_suite or "" if isinstance(stage, RLConfig) and suite else ""
    return facts(weights, suite, held_out, engine=(context, kv_bytes), ranks=stage.parallel.ranks_per_node)


def facts(
    weights: Weights, suite: str = "", eval_suite: str = "", *, engine: tuple[int, int] = (0, 0), ranks: int = 1
) -> Facts:
    """Facts of weights, the longest tasks of both suites, the engine's (context, KV bytes) and the train workers."""
    parameters = int(weights.policy.architecture.get("parameters") or 0)
    model = read_model(weights.path, parameters=parameters, toy=weights.policy.toy)
    task, prompt = _longest_prompt(weights, suite)
    eval_task, eval_prompt = _longest_prompt(weights, eval_suite)
    word = 2 if env().engine.engine == "vllm" else 4
    context, kv_bytes = engine
    room, shared = trainer_bytes(ranks), context or kv_bytes
    return Facts(
        model=model,
        prompt_tokens=prompt,
        prompt_task=task,
        eval_prompt_tokens=eval_prompt,
        eval_prompt_task=eval_task,
        engine_context=context or None,
        kv_tokens=kv_bytes // (model.shape.kv_values * word) if kv_bytes and model.shape else None,
        trainer_bytes=room,
        engine_bytes=(parameters * word + kv_bytes) // ranks if shared and _shares_memory() else 0,
        bfloat16=_bfloat16(),
    )


def derived(config: RunConfig) -> Derived:
    """`config` with numbers for its automatic settings. Raises UserError."""
    return with_facts(config, facts_of(config))


def with_facts(config: RunConfig, known: Facts) -> Derived:
    """Raises UserError if the derived numbers contradict settings that a person chose."""
    try:
        return derive(config, known)
    except ValidationError as error:
        message = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
        raise UserError("stage", f"the automatic settings do not fit the others: {message}") from error


def check(config: RunConfig, known: Facts) -> list[str]:
    """Warnings of the preflight check. Raises UserError naming every setting that keeps the run from learning."""
    problems: Sequence[Problem] = preflight(config, known)
    if fatal := [problem for problem in problems if problem.fatal]:
        fields: dict[str, str] = {}
        for problem in fatal:
            fields.setdefault(problem.field, problem.message)
        raise UserError(fatal[0].field, fatal[0].message, fields=fields)
    return [problem.message for problem in problems]


def as_rows(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Choices as a run keeps them."""
    return [{"path": one.path, "value": one.value, "reason": one.reason} for one in choices]


def automatic_again(config: RunConfig, rows: Sequence[Mapping[str, Any]]) -> RunConfig:
    """A run's configuration with the derived settings automatic again, for a copy of it."""
    values = {
        row["path"]: 0 if row["path"].endswith(".trigger_tokens") else AUTO
        for row in rows
        if row["path"] != SUMMARY_TOKENS  # which has no automatic value: the copy has what fits
    }
    return with_values(config, values)


def engine_limits() -> tuple[int, int]:
    """Longest context and bytes of KV cache of the inference server; 0 where it does not answer or say."""
    _, context, kv_bytes, _ = _server()
    return context, kv_bytes


def serving_engine() -> tuple[str, str]:
    """Kind of the engine that will serve a run, and where or why."""
    settings, kind = env(), _server()[3]
    if kind:
        return kind, f"the server at {settings.inference_url}"
    chosen = settings.engine
    why = f"chosen by auto, because {chosen.why}" if chosen.why else "OPENCOMPOSER_INFERENCE_ENGINE"
    return chosen.engine, f"{why}; the server at {settings.inference_url} does not answer"


def _server() -> tuple[float, int, int, str]:
    url = env().inference_url
    known = _engines.get(url)
    if known and time.monotonic() - known[0] < ENGINE_SECONDS:
        return known
    try:
        health = inference.health(timeout=PATIENCE)
        said = health.max_context, health.kv_bytes, health.engine
    except InferenceError:
        said = 0, 0, ""
    _engines[url] = (time.monotonic(), *said)
    return _engines[url]


def trainer_bytes(ranks: int) -> int | None:
    """Memory of one rank on the largest live train worker: a GPU of its own, or its share of a machine without GPUs
    that runs `ranks` of them. None if no worker reports any."""
    found = []
    for detail in WorkerHeartbeat.objects.filter(kind="train").values_list("detail", flat=True):
        if of_gpu := detail.get("gpu_bytes"):
            found.append(int(of_gpu))
        elif of_machine := detail.get("machine_bytes"):
            found.append(int(of_machine) // ranks)
    return max(found, default=None)


def _shares_memory() -> bool:
    """Whether the inference server runs in the memory of the train worker: on this machine, which has no GPU."""
    details = WorkerHeartbeat.objects.filter(kind="train").values_list("detail", flat=True)
    here = urlsplit(env().inference_url).hostname in LOOPBACK
    return here and not any(detail.get("gpu_bytes") for detail in details)


def _bfloat16() -> bool | None:
    """Whether every train worker that says so has bfloat16 instructions. None if none says anything."""
    said = [
        detail["bfloat16"]
        for detail in WorkerHeartbeat.objects.filter(kind="train").values_list("detail", flat=True)
        if "bfloat16" in detail
    ]
    return all(said) if said else None


def _longest_prompt(weights: Weights, suite: str) -> tuple[str, int | None]:
    """The suite's task with the longest instruction, and the tokens of its opening prompt where they can be counted."""
    task, instruction = _longest_task(suite) if suite else ("", "")
    return task, opening_tokens(weights.path, instruction, profile=PROFILE) if instruction else None


def _longest_task(name: str) -> tuple[str, str]:
    suite = Suite.objects.filter(name=name).values_list("pk", "task_count").first()
    return ("", "") if suite is None else _longest_of(*suite)


@lru_cache(maxsize=64)
def _longest_of(suite: int, _tasks: int) -> tuple[str, str]:
    """Name and instruction of the suite's task with the longest instruction, as long as its size is the same."""
    instruction = KeyTextTransform("instruction", "versions__spec")
    rows = Suite.objects.filter(pk=suite).annotate(text=instruction, slug=F("versions__task__slug"))
    row = rows.order_by(Length("text").desc(nulls_last=True)).values_list("slug", "text").first()
    return (row[0], row[1]) if row and row[1] else ("", "")
