"""Health checks of the product's services, for the health page, the API and supervisors."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
from django.db import DatabaseError, connection
from django.utils import timezone

from composer_web.accounts.people import admins, kept_admin
from composer_web.core import inference
from composer_web.core.artifacts import artifacts
from composer_web.core.models import Lease, Outbox, WorkerHeartbeat
from composer_web.core.queue.heartbeats import SILENT_SECONDS
from composer_web.env import env
from composer_web.runs.models import Run, RunState
from composer_web.runs.train_queues import is_train_queue, pool_queue, pool_title, worker_command
from trainer.inference.choosing import AUTO
from trainer.inference.contract import InferenceError

LOW_DISK_BYTES = 1 << 30
FORGOTTEN = timedelta(seconds=30)
"""A lease that expired longer ago than this has no successor."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check. If `ok` is False, `message` names the remedy."""

    name: str
    ok: bool
    message: str
    seconds: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


def checks() -> list[Check]:
    """All checks, each with a short timeout. Postgres comes first: the others depend on it."""
    database = _timed("database", _database)
    found = [
        database,
        _timed("broker", _broker),
        _timed("inference", _inference),
        _timed("disk", _disk),
        _timed("weights", check_weights),
        _timed("artifacts", check_artifacts),
    ]
    if database.ok:
        found += [_timed("outbox", check_outbox), _timed("workers", check_workers), _timed("leases", check_leases)]
        found.append(_timed("admins", _admins))
        found.append(_timed("queues", lambda: check_queues(found[1].detail.get("queues", {}))))
    return found


def _timed(name: str, check: Callable[[], tuple[bool, str, dict[str, Any]]]) -> Check:
    began = time.perf_counter()
    ok, message, detail = check()
    return Check(name, ok, message, round(time.perf_counter() - began, 4), detail)


def _database() -> tuple[bool, str, dict[str, Any]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('server_version')")
            return True, f"Postgres {cursor.fetchone()[0]}", {}
    except DatabaseError as error:
        return False, f"Postgres does not answer: {str(error).strip()}; see its log or start it with `make up`", {}


def _broker() -> tuple[bool, str, dict[str, Any]]:
    from composer_web.system.reconcile import queue_depth

    try:
        with redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0) as client:
            info: dict[str, Any] = client.info("server")
    except redis.RedisError as error:
        remedy = "start it, or mend OPENCOMPOSER_REDIS_URL; messages wait in the outbox meanwhile"
        return False, f"the broker does not answer: {error}; {remedy}", {}
    name = "Valkey" if "valkey_version" in info else "Redis"
    return True, f"{name} {info.get('valkey_version') or info.get('redis_version')}", {"queues": queue_depth() or {}}


def _inference() -> tuple[bool, str, dict[str, Any]]:
    try:
        health = inference.health()
    except InferenceError as error:
        return False, str(error), {}
    detail = health.model_dump(mode="json")
    if not health.ok:
        where = (
            "; OPENCOMPOSER_VLLM_URLS names them, and the members file if there is one"
            if health.engine == "vllm"
            else ""
        )
        return False, f"{health.engine}: {health.error}{where}", detail
    kind = (
        f"{health.engine} (OPENCOMPOSER_INFERENCE_ENGINE is auto)" if env().inference_engine == AUTO else health.engine
    )
    parts = [kind, f"{health.tokens_per_second:.0f} tok/s"]
    if health.servers:
        down = [server for server in health.servers if not server.ok]
        parts.insert(1, f"{len(health.servers) - len(down)} of {len(health.servers)} servers answer")
        parts += [f"{server.url} leaves" for server in health.servers if server.leaving]
        parts += [server.error for server in down if not server.leaving]
    if health.error:
        parts.append(health.error)
    return True, ", ".join(parts), detail


def _disk() -> tuple[bool, str, dict[str, Any]]:
    usage = shutil.disk_usage(env().data)
    ok = usage.free > LOW_DISK_BYTES
    text = f"{usage.free / 2**30:.1f} GiB free"
    return ok, text if ok else f"{text}: free some below {env().data} or checkpoints will fail", {"free": usage.free}


def check_weights() -> tuple[bool, str, dict[str, Any]]:
    where = env().weight_store or str(env().data / "weights")
    folder = env().data / "weights"
    if not env().weight_store and folder.exists() and not os.access(folder, os.W_OK):
        return (
            False,
            f"{where} cannot be written: give it to the account of the trainer, or runs fail",
            {"store": where},
        )
    return True, f"runs publish to {where}", {"store": where}


def check_artifacts() -> tuple[bool, str, dict[str, Any]]:
    store = artifacts()
    detail = {"store": str(store.place)}
    if env().artifact_store and (problem := store.problem()):
        remedy = "check the bucket, its rights and the network (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID …)"
        return False, f"{store.place} does not answer, rollouts cannot be kept: {problem}; {remedy}", detail
    if isinstance(store.place, Path) and store.place.exists() and not os.access(store.place, os.W_OK):
        return False, f"{store.place} cannot be written: give it to the account of the workers", detail
    return True, f"trajectories and logs are kept in {store.place}", detail


def check_leases() -> tuple[bool, str, dict[str, Any]]:
    """Leases whose holder no longer sends heartbeats. The reconciler reassigns the work, so a few seconds are
    harmless."""
    held = Lease.objects.exclude(owner="")
    late = list(held.filter(expires_at__lt=timezone.now() - FORGOTTEN).order_by("expires_at")[:5])
    if not late:
        return True, f"{held.count()} held", {}
    names = ", ".join(f"{lease.resource} of {lease.owner}" for lease in late)
    return (
        False,
        f"expired and not taken over: {names}. The process died and nobody follows: see its log, start it with `make up`, "
        "and look at what `manage.py reconcile --dry-run` says",
        {"leases": [lease.resource for lease in late]},
    )


def _admins() -> tuple[bool, str, dict[str, Any]]:
    known = admins()
    if (kept := kept_admin(known)) is None:
        return True, f"{len(known)} may administer", {}
    name, asked = kept
    return (
        False,
        f"{name} is the last admin and stays one, although the identity provider's groups say {asked}: make somebody else "
        f"an admin on the page People, or put {name} back into a group that OPENCOMPOSER_OIDC_ROLES makes admins",
        {"user": name, "asked": asked},
    )


def check_queues(depth: dict[str, int]) -> tuple[bool, str, dict[str, Any]]:
    """Queues with messages but no consumer."""
    since = timezone.now() - timedelta(seconds=SILENT_SECONDS)
    served = {
        name
        for detail in WorkerHeartbeat.objects.filter(beat_at__gte=since).values_list("detail", flat=True)
        for name in detail.get("queues", [])
    }
    stuck = {name: count for name, count in depth.items() if count and name not in served}
    if not stuck:
        return True, f"{sum(depth.values())} messages wait", {}
    words = ", ".join(f"{count} in {name}" for name, count in stuck.items())
    workers = ", ".join(f"`{_command(name)}`" for name in stuck)
    return False, f"messages wait and no living process takes them: {words}. Start {workers} (`make up` does)", stuck


def _command(queue: str) -> str:
    return (
        worker_command(queue) if is_train_queue(queue) else f"celery -A composer_web worker -Q {queue} --pool threads"
    )


def check_outbox() -> tuple[bool, str, dict[str, Any]]:
    waiting = Outbox.objects.filter(sent_at=None, due_at__lte=timezone.now())
    oldest = waiting.order_by("due_at").values_list("due_at", flat=True).first()
    age = (timezone.now() - oldest).total_seconds() if oldest else 0.0
    ok = age < 30
    return (
        ok,
        f"{waiting.count()} waiting" + ("" if ok else f", the oldest for {age:.0f} s: is the control worker up?"),
        {},
    )


def check_workers() -> tuple[bool, str, dict[str, Any]]:
    now = timezone.now()
    rows = [
        {"name": w.name, "kind": w.kind, "silent": round((now - w.beat_at).total_seconds(), 1), "detail": w.detail}
        for w in WorkerHeartbeat.objects.all()
    ]
    living = [row for row in rows if row["silent"] < SILENT_SECONDS]
    queues = {queue for row in living for queue in row["detail"].get("queues", [])}
    missing = {"train", "control", "io", "rollout", "clock"} - {row["kind"] for row in living} - queues
    text = (
        f"{len(rows)} processes"
        if not missing
        else f"no living {', '.join(sorted(missing))}: start them with `make up`"
    )
    if "clock" in missing:
        text += " (the clock is `celery -A composer_web beat`: without it nothing is dispatched, reconciled or alerted)"
    alone = sorted(_wanted_pools() - queues)
    if alone:
        pools = ", ".join(pool_title(queue) for queue in alone)
        commands = ", ".join(f"`{worker_command(queue)}`" for queue in alone)
        text += f"; runs wait for a worker of the pool {pools}, and none lives: start {commands} where its GPUs are"
    return not missing and not alone, text, {"workers": rows}


def _wanted_pools() -> set[str]:
    """Queues of the pools of all runs that are trained or wait for it."""
    configs = Run.objects.filter(state__in=[RunState.QUEUED, RunState.RUNNING, RunState.PAUSING])
    return {pool_queue(pool or "") for pool in configs.values_list("config__pool", flat=True).distinct().order_by()}
