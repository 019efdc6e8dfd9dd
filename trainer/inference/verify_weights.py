"""Weight verification: an engine must reproduce the log-probabilities that the weights' publisher recorded.

Runs after a first load and after each full reload, before any answer counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.errors import ServerError
from trainer.weights.probe import Probe

PROBE_SECONDS = 60.0
AGAIN_SECONDS = 300.0
"""Interval between checks of a serving engine: memory fails, and another client may load other weights."""
AGAIN_PATIENCE = 20.0
"""Timeout of a repeated check; a busier engine is checked later."""


class WeightMismatch(ServerError):
    """The engine's outputs differ from those of the published weights."""

    code = "engine_differs"
    status = 422


def questions(probe: Probe, deployment: str) -> list[GenerateRequest]:
    return [
        GenerateRequest(
            deployment=deployment,
            prompt_ids=row.prompt_ids,
            max_tokens=1,
            temperature=0.0,
            timeout_seconds=PROBE_SECONDS,
        )
        for row in probe.rows
    ]


def judge(probe: Probe, answers: list[GenerateResponse], *, deployment: str, version: int, where: str) -> float:
    """Gap in nats. Raises WeightMismatch beyond the bound."""
    gap = probe.gap([(answer.token_ids[0], answer.logprobs[0]) for answer in answers])
    if not gap <= probe.bound:  # also NaN
        raise WeightMismatch(
            f"{where} does not compute version {version} of {deployment!r}: log-probabilities of the probe are off by "
            f"{gap:.3g} nats on average ({probe.bound:g} are allowed), so nothing that it says is used; "
            "restart that engine, and look at its version, its dtype and the policy that it was started with"
        )
    return gap


def meanwhile(error: WeightMismatch, well: float) -> WeightMismatch:
    """Error for weights that passed verification `well` seconds ago."""
    return WeightMismatch(
        f"{error}. Found while it served; it computed well {well:.0f} s ago, and what it said since is suspect"
    )


async def verify_weights(
    probe: Probe,
    generate: Callable[[GenerateRequest], Awaitable[GenerateResponse]],
    *,
    deployment: str,
    version: int,
    where: str,
) -> float | None:
    """Gap in nats; None where the engine changed its version meanwhile: ask again. Raises WeightMismatch and errors of
    `generate`.
    """
    answers = [await generate(request) for request in questions(probe, deployment)]
    if any(span.version != version for answer in answers for span in answer.spans):
        return None
    return judge(probe, answers, deployment=deployment, version=version, where=where)
