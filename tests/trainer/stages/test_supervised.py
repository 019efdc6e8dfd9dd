"""Mid-training and SFT: they learn, resume to the same numbers, and refuse too little data."""

import pytest

from sandbox.harness.types import ToolCall, ToolResult
from tests.trainer.stages.memory import BASE_POLICY, MemorySink, foreign_policy
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, OptimizerConfig
from trainer.errors import StageError
from trainer.learning.metrics import describe
from trainer.midtrain.stage import run_midtrain
from trainer.policy.round_trip import check_template
from trainer.sft.expert_episodes import EpisodeTurn, ExpertEpisode
from trainer.sft.stage import run_sft
from trainer.stages.supervised_loop import Alone
from trainer.toy.preset import toy_midtrain, toy_sft

pytestmark = pytest.mark.integration

COMMON = {
    "steps": 4,
    "batch_tokens": 600,
    "optimizer": OptimizerConfig(name="muon", learning_rate=2e-3, warmup_steps=0),
    "checkpoint": CheckpointConfig(every_steps=2, keep=1),
}


def midtrain(root, sink, **changes):
    return run_midtrain(
        policy_dir=BASE_POLICY,
        # No library source: tokenising it is most of the time of so short a run.
        config=toy_midtrain(**({"source_share": 0.0} | COMMON | changes)),
        seed=0,
        sink=sink,
        checkpoints=CheckpointStore(root, keep=1),
    )


class DiesWithACheckpoint(MemorySink):
    def checkpoint_saved(self, step, path, *, final):
        raise RuntimeError("killed")


def test_a_trainer_that_dies_with_a_checkpoint_has_reported_its_step(tmp_path):
    sink = DiesWithACheckpoint()
    with pytest.raises(RuntimeError, match="killed"):
        midtrain(tmp_path, sink, steps=2)
    assert "time/step" in sink.values[2], "nobody repeats that step"


def episodes(count: int) -> list[ExpertEpisode]:
    def turn(index: int, name: str, arguments: dict, output: str) -> EpisodeTurn:
        call = ToolCall(id=f"call_{index}", name=name, arguments=arguments)
        return EpisodeTurn(calls=(call,), results=(ToolResult(call_id=call.id, output=output),))

    return [
        ExpertEpisode(
            task_id=f"t{i}",
            bundle_hash="0" * 64,
            profile="toy",
            messages=({"role": "user", "content": f"total_{i}(2) gives {i}, expected {i + 1}"},),
            turns=(
                turn(0, "grep", {"pattern": f"def total_{i}"}, f"totals.py:1:def total_{i}(n):"),
                turn(1, "finish", {}, ""),
            ),
        )
        for i in range(count)
    ]


def sft(root, sink, data, policy_dir=BASE_POLICY, trainee_of=Alone, corpora=None, **changes):
    return run_sft(
        policy_dir=policy_dir,
        config=toy_sft(**(COMMON | changes)),
        seed=0,
        episodes=data,
        sink=sink,
        checkpoints=CheckpointStore(root, keep=1),
        trainee_of=trainee_of,
        corpora=corpora,
    )


STAGES = {"midtrain": midtrain, "sft": lambda root, sink: sft(root, sink, episodes(20))}


@pytest.fixture(scope="module", params=STAGES)
def completed(request, tmp_path_factory):
    """A stage, and its whole run."""
    sink = MemorySink()
    return STAGES[request.param], STAGES[request.param](tmp_path_factory.mktemp("whole"), sink), sink


def test_completes_with_checkpoints_and_known_metrics(completed):
    _, result, sink = completed
    assert (result.outcome, result.step) == ("completed", 4)
    assert sink.checkpoints == [(2, False), (4, True)]
    assert "loss/heldout" in sink.values[4]
    for name in sink.values[4]:
        describe(name)
    policies.load(result.checkpoint / "policy")


def test_resumes_to_the_same_numbers(tmp_path, completed):
    stage, _, whole = completed
    first, second = MemorySink(stop_after=3), MemorySink()
    assert stage(tmp_path, first).outcome == "stopped"
    stage(tmp_path, second)
    assert list(second.values) == [4]
    assert second.values[4]["loss/train"] == whole.values[4]["loss/train"]
    assert second.values[4]["loss/heldout"] == whole.values[4]["loss/heldout"]


def test_from_scratch_starts_near_the_uniform_loss_and_falls(tmp_path):
    sink = MemorySink()
    midtrain(tmp_path, sink, init="scratch", steps=8, drill_share=0.0)
    assert sink.values[8]["loss/heldout"] < sink.values[1]["loss/heldout"] - 0.3
    assert sink.values[1]["loss/train"] > 6.0


def test_sft_learns_its_episodes(tmp_path):
    sink = MemorySink()
    sft(tmp_path, sink, episodes(40))
    assert sink.values[4]["loss/heldout"] < sink.values[1]["loss/heldout"]


class Watched(Alone):
    """Notes how many tokens are measured at a time."""

    measured: list[int]

    def loss(self, rows):
        self.measured.append(sum(len(row.ids) for row in rows))
        return super().loss(rows)


@pytest.mark.parametrize(("batch_tokens", "most"), [(60, 240), (600, 2400), (1, 150)])
def test_measuring_held_out_rows_costs_about_as_much_as_a_step(tmp_path, batch_tokens, most):
    """SFT of a real model measured six times the tokens of a step, padded to the longest row, before it told of step 1."""
    Watched.measured = []
    sft(tmp_path, MemorySink(), episodes(240), trainee_of=Watched, batch_tokens=batch_tokens, steps=1)
    assert 0 < Watched.measured[0] <= most  # a row at least: about 100 tokens


HYBRID = """\
{{- '<|bos|>' -}}
{%- set asked = namespace(at=0) -%}
{%- for m in messages if m.role == 'user' -%}{%- set asked.at = messages.index(m) -%}{%- endfor -%}
{%- for m in messages -%}
{%- if m.role in ('user', 'tool') -%}{{- '<|' + m.role + '|>' + m.content + '<|end|>' -}}
{%- elif m.role == 'assistant' -%}
{{- '<|assistant|>' -}}
{%- if loop.index0 > asked.at and (loop.last or m.reasoning_content) -%}
{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' -}}
{%- endif -%}
{%- for c in m.tool_calls or [] -%}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}\\n</tool_call>' -}}
{%- endfor -%}
{{- (m.content or '') + '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"""
"""As hybrid thinkers have it: the last turn shows a thinking block, be it an empty one, and what was thought before the last
question is forgotten."""


def test_a_hybrid_thinker_is_not_trained_on_turns_that_its_template_writes_otherwise(tmp_path):
    folder = foreign_policy(tmp_path / "hybrid", hidden_size=64)
    (folder / "chat_template.jinja").write_text(HYBRID)
    check_template(policies.load(folder).renderer)  # sampled turn by turn it plays: the last turn is never shown again
    with pytest.raises(
        StageError, match=r"hybrid is not token-exact: from token .* '.*<think>.*no empty block .*\.jinja"
    ):
        sft(tmp_path / "refused", MemorySink(), episodes(20), policy_dir=folder)
    assert not list((tmp_path / "refused").glob("step-*"))
    (folder / "chat_template.jinja").write_text(
        HYBRID.replace("(loop.last or m.reasoning_content)", "m.reasoning_content")
    )
    assert sft(tmp_path / "mended", MemorySink(), episodes(20), policy_dir=folder).outcome == "completed"


def test_too_few_episodes_are_refused(tmp_path):
    with pytest.raises(StageError, match="at least 10 expert episodes, 3 were recorded"):
        sft(tmp_path, MemorySink(), episodes(3))


def test_sft_measures_a_codebase_that_it_never_trains_on(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "x.py").write_text("def total(items):\n    return sum(items)\n" * 20)
    sink, alone = MemorySink(), MemorySink()
    sft(tmp_path / "a", sink, episodes(20), corpora=tmp_path, codebase="ours", held_out_tokens=200)
    sft(tmp_path / "b", alone, episodes(20))
    assert 0 < sink.values[4]["loss/codebase"] < 20 and "loss/codebase" in sink.values[1]
    assert sink.values[4]["loss/heldout"] == alone.values[4]["loss/heldout"]
    with pytest.raises(StageError, match="no folder of corpora"):
        sft(tmp_path / "c", MemorySink(), episodes(20), codebase="ours")
    with pytest.raises(StageError, match="gone"):
        sft(tmp_path / "d", MemorySink(), episodes(20), corpora=tmp_path, codebase="gone")
