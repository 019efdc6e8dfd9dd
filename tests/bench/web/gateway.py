"""`make bench NAME=gateway`: what the gateway adds to the first token of a stream.

A throw-away Postgres and Valkey, the embedded engine and the product under uvicorn, each a process of its own. Requests come
in pairs, either first in turn: the engine asked directly for one token of a prompt (tokens in, tokens out), and the gateway
asked over its API for a stream of the same prompt, timed until its first event, which is sent once the first token is there.
Both go through one kept connection, and each has a prompt of its own, so that neither finds the other's keys in the cache.

The engine says with each answer how long it took by its own clock, and for two prompts of one size it differs from itself by
milliseconds (`engine_noise_ms_p95`: the 95th percentile of the differences between two direct requests in a row). So each
of a pair is taken without its engine's own time, and `gateway_added_ms_p95` is the 95th percentile of the differences of the
rest (all that is before, after and between), and what the engine is slowed down by meanwhile, should it be
(`engine_slowed_ms_p50`). The 95th percentile of the plain differences, engine and its noise included, is `difference_ms_p95`.

Then one token sends the largest bodies while the health endpoint is timed (`gateway_hostile.py`, `hostile_stall_ms`).

On a machine that others use, fewer pairs are measured: the measurement ends after `--seconds`, and its conditions say how
many there were.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from scripts.stack import throwaway
from tests.bench import report
from tests.bench.web import gateway_hostile
from trainer.inference import transport
from trainer.inference.client import InferenceAdmin
from trainer.inference.embedded.serving.process import EmbeddedServer

GOALS: dict[str, report.Goal] = {"gateway_added_ms_p95": ("<=", 5.0), "hostile_stall_ms": ("<=", 200.0)}
BASE = Path(__file__).resolve().parents[3] / "policies" / "base"
START_SECONDS = 120.0
MIN_PAIRS = 40


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of one measurement."""

    pairs: int = 300
    warm: int = 20
    """Pairs before, not counted."""
    words: int = 60
    """Words of a prompt."""
    seconds: float = 120.0
    """Most that the pairs may take together."""
    record: bool = False
    """Whether sessions are recorded."""
    hostile: float = 40.0
    """Seconds of hostile bodies (`gateway_hostile.py`); 0 leaves them out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Sizes()
    parser.add_argument("--pairs", type=int, default=usual.pairs)
    parser.add_argument("--warm", type=int, default=usual.warm, help="pairs before, not counted")
    parser.add_argument("--words", type=int, default=usual.words, help="words of a prompt")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="most that the pairs may take together")
    parser.add_argument("--record", action="store_true", help="sessions are recorded")
    parser.add_argument("--hostile", type=float, default=usual.hostile, help="seconds of the largest bodies; 0: none")
    sizes = Sizes(**vars(parser.parse_args()))
    with throwaway.services(large=True) as variables:
        os.environ.update(variables)
        os.environ["DJANGO_SETTINGS_MODULE"] = "composer_web.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        metrics, conditions = measure(sizes)
    report.emit("gateway", metrics, goals=GOALS, conditions=conditions)


def measure(sizes: Sizes) -> tuple[dict[str, float], dict[str, object]]:
    """Figures and conditions, on the migrated database of the environment, which gets a policy and promotes it."""
    with tempfile.TemporaryDirectory() as scratch, EmbeddedServer(Path(scratch)) as engine:
        os.environ["OPENCOMPOSER_INFERENCE_URL"] = engine.url
        secret, deployment = prepare(sizes)
        with web(Path(scratch)) as url:
            metrics, conditions = paired(sizes, engine.url, url, secret, deployment)
            if sizes.hostile:
                stalls = gateway_hostile.measure(url, secret, seconds=sizes.hostile)
                metrics |= {name: round(value, 2) for name, value in stalls.items()}
            return metrics, conditions


def prepare(sizes: Sizes) -> tuple[str, str]:
    """The shipped policy promoted; a token, and the name of the deployment that will serve it."""
    from django.db import connection

    from composer_web.accounts.models import Role
    from composer_web.accounts.services import create_token, create_user
    from composer_web.gateway.configuration import change
    from composer_web.policies.promotion import services as promotion
    from composer_web.policies.services import import_base

    name = f"bench-gateway-{time.time_ns()}"  # the database may be one that is kept
    user = create_user(username=name, password="correct horse battery", role=Role.VIEWER)
    _, secret = create_token(user=user, name="bench", scopes=["gateway"])
    policy = import_base(path=BASE, name=name, toy=True)
    promotion.promote(reference=f"{name}@0")
    change(values={"requests_per_minute": 1_000_000, "recording": sizes.record})
    connection.close()
    return secret, f"gateway-{policy.pk}-0"


class web:
    """The product under uvicorn."""

    def __init__(self, scratch: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = (scratch / "web.log").open("wb")

    def __enter__(self) -> str:
        command = [sys.executable, "-m", "uvicorn", "composer_web.asgi:application", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--log-level", "warning", "--http", transport.NAME], stdout=self.log, stderr=self.log
        )
        end = time.monotonic() + START_SECONDS
        url = f"http://127.0.0.1:{self.port}"
        while True:
            try:
                httpx.get(f"{url}/v1/models", trust_env=False)  # 401 is an answer too
                return url
            except httpx.TransportError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


def paired(
    sizes: Sizes, engine: str, gateway: str, secret: str, deployment: str
) -> tuple[dict[str, float], dict[str, object]]:
    from trainer.policy.store import load

    render = load(BASE).renderer
    direct: list[Took] = []
    through: list[Took] = []
    bearer = {"Authorization": f"Bearer {secret}"}
    with (
        httpx.Client(base_url=engine, trust_env=False) as there,
        httpx.Client(base_url=gateway, trust_env=False, headers=bearer, timeout=120) as here,
    ):
        end = time.monotonic() + sizes.seconds
        for pair in range(-sizes.warm, sizes.pairs):
            if time.monotonic() > end:
                break
            texts = [" ".join(f"word {pair + sizes.warm} {n} {who}" for n in range(sizes.words // 3)) for who in "ab"]
            prompt = render.start([{"role": "user", "content": texts[1]}])
            if (
                pair + sizes.warm
            ) % 2:  # neither always finds the machine as the other left it; the gateway deploys first
                first = one_token(there, prompt, deployment)
                second = first_token(here, texts[0], f"s{pair}", sizes.record)
            else:
                second = first_token(here, texts[0], f"s{pair}", sizes.record)
                first = one_token(there, prompt, deployment)
            if pair >= 0:
                direct.append(first)
                through.append(second)
    if len(direct) < MIN_PAIRS:
        raise SystemExit(
            f"only {len(direct)} pairs in {sizes.seconds:g} s, a percentile needs {MIN_PAIRS}: this machine is busy; "
            "measure when it is quiet, or give --seconds more"
        )
    with InferenceAdmin(engine) as admin:
        assert deployment in {status.name for status in admin.deployments()}
    pairs = list(zip(through, direct, strict=True))
    added = [t.rest - d.rest for t, d in pairs]
    plain = [t.all - d.all for t, d in pairs]
    noise = [after.engine - before.engine for before, after in itertools.pairwise(direct)]
    slowed = statistics.median(t.engine for t in through) - statistics.median(d.engine for d in direct)
    metrics = {
        "gateway_added_ms_p95": _p95(added) + max(0.0, slowed),
        "gateway_added_ms_p50": statistics.median(added) + max(0.0, slowed),
        "engine_slowed_ms_p50": slowed,
        "difference_ms_p95": _p95(plain),
        "difference_ms_p50": statistics.median(plain),
        "engine_noise_ms_p95": _p95(noise),
        "direct_ms_p50": statistics.median(d.all for d in direct),
        "direct_ms_p95": _p95([d.all for d in direct]),
        "through_ms_p50": statistics.median(t.all for t in through),
        "through_ms_p95": _p95([t.all for t in through]),
    }
    metrics = {name: round(1000 * seconds, 2) for name, seconds in metrics.items()}
    return metrics, {"pairs": len(direct), "words": sizes.words, "recorded": sizes.record}


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of one request."""

    all: float
    engine: float
    """Seconds in the engine, from the request's arrival there to its answer."""

    @property
    def rest(self) -> float:
        return self.all - self.engine


def one_token(client: httpx.Client, prompt: list[int], deployment: str) -> Took:
    body = {"deployment": deployment, "prompt_ids": prompt, "max_tokens": 1, "seed": 1}
    began = time.perf_counter()
    answer = client.post("/generate", json=body).raise_for_status()
    return Took(time.perf_counter() - began, answer.json()["seconds"])


def first_token(client: httpx.Client, text: str, session: str, record: bool) -> Took:
    """Until the first event, which opens the message and is sent once the first token is there."""
    body = {
        "model": "production", "stream": True, "max_tokens": 1, "temperature": 1.0, "seed": 1,
        "messages": [{"role": "user", "content": text}],
        "metadata": {"session_id": session, **({"record": "yes"} if record else {})},
    }  # fmt: skip
    began = time.perf_counter()
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        if not answer.is_success:
            raise SystemExit(f"the gateway answers {answer.status_code}: {answer.read().decode()}")
        seconds = 0.0
        for line in answer.iter_lines():
            seconds = seconds or time.perf_counter() - began
            if line.startswith("data: {") and "error" in json.loads(line[6:]):
                raise SystemExit(line)
    return Took(seconds, _engine_seconds(answer.headers["Server-Timing"]))


def _engine_seconds(timing: str) -> float:
    found = re.search(r"engine;dur=([\d.]+)", timing)
    assert found is not None, f"the gateway says {timing!r}"
    return float(found[1]) / 1000


if __name__ == "__main__":
    main()
