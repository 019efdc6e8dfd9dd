"""Trajectories built by hand for tests."""

from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import StopReason, ToolCall
from trainer.types import Segment, Trajectory, Turn


def trajectory(
    verdict: Verdict = Verdict.PASSED,
    stop: StopReason = StopReason.FINISHED,
    *,
    sample: int = 0,
    reward: float | None = None,
    version: int = 3,
    calls: int = 2,
) -> Trajectory:
    """Prompt of 3 tokens, a calling turn of 4 (1 of them thinking), an observation of 5, a final turn of 2."""
    mask = [0] * 3 + [1] * 4 + [0] * 5 + [1] * 2
    return Trajectory(
        task_id="t",
        bundle_hash="0" * 64,
        sample=sample,
        messages=(),
        tool_schema_hash="",
        turns=(
            Turn(
                index=0,
                text="",
                token_start=3,
                token_end=7,
                thinking_tokens=1,
                calls=tuple(ToolCall(id=str(i), name="grep") for i in range(calls)),
            ),
            Turn(index=1, text="", token_start=12, token_end=14),
        ),
        segments=(
            Segment(
                tokens=list(range(14)),
                logprobs=[-0.5 * m for m in mask],
                loss_mask=mask,
                versions=[version if m else -1 for m in mask],
            ),
        ),
        stop_reason=stop,
        report=Report(verdict=verdict),
        reward=reward,
    )
