"""Textual feedback: which turns are found, how hints are inserted, and what the loss moves."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch

from sandbox.grading.audit.judge.client import Endpoint, JudgeError
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from tests.trainer.learning.models import tiny_model
from trainer import policy as policies
from trainer.algorithms.textual_feedback import hints_of
from trainer.algorithms.textual_feedback.find import Hint, find
from trainer.algorithms.textual_feedback.insert import hinted
from trainer.algorithms.textual_feedback.writer import HintWriter
from trainer.config import RLConfig, TextualFeedbackConfig
from trainer.learning.distillation import add_gradients, bucket_kl, learn_from_hints, logps, turn_states
from trainer.toy.preset import toy_rl
from trainer.types import HintedTurn, Segment, TrainGroup, Trajectory, Turn

BASE = Path(__file__).parents[3] / "policies" / "base"
TOOLS = ("grep", "read_file", "finish")
ON = TextualFeedbackConfig(coefficient=1.0, min_shift=0.0)


@pytest.fixture(scope="module")
def renderer() -> policies.ChatRenderer:
    return policies.make_renderer(policies.load_tokenizer(BASE))


def result(output: str, kind: ToolErrorKind | None = None) -> ToolResult:
    return ToolResult(call_id="call_0", output=output, error=ToolError(kind=kind, message=output) if kind else None)


def rollout(renderer: policies.ChatRenderer, turns: list[tuple[ToolCall, ToolResult]]) -> Trajectory:
    """An episode of these turns as the policy would have seen and sampled it."""
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "`f(1)` is 2 instead of 3."})
    tokens, made = renderer.start(messages, schemas_of(get_profile("toy"))), []
    mask = [0] * len(tokens)
    for index, (call, answer) in enumerate(turns):
        said = renderer.turn([call])
        start = len(tokens)
        tokens, mask = tokens + said, mask + [1] * len(said)
        made.append(
            Turn(index=index, text="", token_start=start, token_end=len(tokens), calls=(call,), results=(answer,))
        )
        if index < len(turns) - 1:
            shown = renderer.observe([answer])
            tokens, mask = tokens + shown, mask + [0] * len(shown)
    segment = Segment(tokens=tokens, logprobs=[-0.1 * m for m in mask], loss_mask=mask, versions=[m - 1 for m in mask])
    return Trajectory(
        task_id="t", bundle_hash="0" * 64, sample=0, messages=messages, tool_schema_hash="", turns=tuple(made),
        segments=(segment,), stop_reason=StopReason.FINISHED, report=Report(verdict=Verdict.PASSED), reward=1.0,
    )  # fmt: skip


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id="call_0", name=name, arguments=arguments)


@pytest.fixture(scope="module")
def wrong_tool(renderer: policies.ChatRenderer) -> Trajectory:
    unknown = result("error: no tool search; tools: grep", ToolErrorKind.UNKNOWN_TOOL)
    return rollout(
        renderer,
        [(call("grep", pattern="def f"), result("a.py:1:def f(x):")), (call("search", pattern="f"), unknown),
         (call("finish"), result(""))],
    )  # fmt: skip


def test_rules_find_the_turn_and_say_what_to_do(wrong_tool: Trajectory) -> None:
    (hint,) = find(wrong_tool, rules=("unknown_tool", "repeated_call"), tools=TOOLS)
    assert (hint.turn, hint.rule) == (1, "unknown_tool")
    assert hint.text == "Reminder: there is no tool search. Available tools: grep, read_file, finish."


def test_repeats_and_the_terminal_are_found(renderer: policies.ChatRenderer) -> None:
    same = (call("grep", pattern="x"), result("no matches"))
    terminal = (call("run_terminal_cmd", command="cat a.py"), result("x = 1"))
    found = find(rollout(renderer, [same, same, terminal]), rules=("repeated_call", "terminal_for_tools"), tools=TOOLS)
    assert [(hint.turn, hint.rule) for hint in found] == [(1, "repeated_call"), (2, "terminal_for_tools")]


def test_a_rule_that_does_not_exist_is_named(wrong_tool: Trajectory) -> None:
    with pytest.raises(ValueError, match=r"feedback\.rules names 'tone'"):
        find(wrong_tool, rules=("tone",), tools=TOOLS)


@pytest.mark.parametrize("turn", [0, 1])
def test_a_hint_is_the_last_thing_read_and_no_token_is_made_anew(
    renderer: policies.ChatRenderer, wrong_tool: Trajectory, turn: int
) -> None:
    schemas = schemas_of(get_profile("toy"))
    made = hinted(
        wrong_tool, Hint(turn, "r", "Reminder: use grep."), renderer=renderer, schemas=schemas, max_tokens=900
    )
    assert made is not None
    tokens, at = wrong_tool.segments[0].tokens, wrong_tool.turns[turn]
    assert made.tokens == tokens[: at.token_end]
    assert made.hinted_tokens[-made.turn_tokens :] == tokens[at.token_start : at.token_end]
    kept = wrong_tool.turns[turn - 1].token_end if turn else 0
    assert made.hinted_tokens[:kept] == tokens[:kept]
    inserted = renderer.tokenizer.decode(made.hinted_tokens[: -made.turn_tokens])
    assert inserted.count("Reminder: use grep.") == 1
    assert "Reminder" not in renderer.tokenizer.decode(made.tokens)


@pytest.mark.parametrize("opening", ["continue: the summary says that f is in a.py", ""], ids=["summary", "truncation"])
def test_the_first_turn_after_a_summary_gets_its_hint(
    renderer: policies.ChatRenderer, wrong_tool: Trajectory, opening: str
) -> None:
    schemas = schemas_of(get_profile("toy"))
    system, task = wrong_tool.messages
    start = renderer.start([system, {**task, "content": opening or "anything"}], schemas)
    said = renderer.turn([call("search", pattern="f")])
    tokens, mask = start + said, [0] * len(start) + [1] * len(said)
    later = Segment(
        tokens=tokens, logprobs=[0.0] * len(mask), loss_mask=mask, versions=[m - 1 for m in mask], opening=opening
    )
    turn = wrong_tool.turns[1].model_copy(
        update={"index": 3, "segment": 1, "token_start": len(start), "token_end": len(tokens)}
    )
    longer = wrong_tool.model_copy(
        update={"turns": (*wrong_tool.turns, turn), "segments": (*wrong_tool.segments, later)}
    )
    made = hinted(longer, Hint(3, "r", "Reminder: use grep."), renderer=renderer, schemas=schemas, max_tokens=900)
    if not opening:
        assert made is None, "its window opens with turns, which are no messages"
        return
    assert made is not None and made.tokens == tokens and made.hinted_tokens[-len(said) :] == said
    shown = renderer.tokenizer.decode(made.hinted_tokens)
    assert shown.count("Reminder: use grep.") == 1 and "the summary says" in shown


def test_a_context_that_cannot_be_made_again_is_left_alone(
    renderer: policies.ChatRenderer, wrong_tool: Trajectory
) -> None:
    (segment,) = wrong_tool.segments
    at = wrong_tool.turns[0].token_end
    other = segment.model_copy(update={"tokens": [*segment.tokens[:at], 9, *segment.tokens[at + 1 :]]})
    changed = wrong_tool.model_copy(update={"segments": (other,)})
    schemas = schemas_of(get_profile("toy"))
    assert hinted(changed, Hint(1, "r", "Reminder."), renderer=renderer, schemas=schemas, max_tokens=900) is None
    assert hinted(wrong_tool, Hint(1, "r", "Reminder."), renderer=renderer, schemas=schemas, max_tokens=60) is None


def test_hints_of_a_group_are_bounded_and_off_by_default(
    renderer: policies.ChatRenderer, wrong_tool: Trajectory
) -> None:
    assert hints_of([wrong_tool] * 3, toy_rl(), renderer, seed=0) == []
    on = toy_rl(textual_feedback=TextualFeedbackConfig(coefficient=0.5, max_hints=2))
    assert [turn.rule for turn in hints_of([wrong_tool] * 3, on, renderer, seed=0)] == ["unknown_tool"] * 2
    asks = toy_rl(textual_feedback=TextualFeedbackConfig(coefficient=0.5, rules="model"))
    with pytest.raises(ValueError, match="no language model is configured"):
        hints_of([wrong_tool], asks, renderer, seed=0)


def test_hints_are_dealt_to_rollouts_in_turn_whatever_their_place(renderer: policies.ChatRenderer) -> None:
    unknown = result("error: no such tool; tools: grep", ToolErrorKind.UNKNOWN_TOOL)
    group = [
        rollout(renderer, [(call(f"{name}{n}"), unknown) for n in range(4)]) for name in ("ant", "bee", "cat", "dog")
    ]
    on = toy_rl(textual_feedback=TextualFeedbackConfig(coefficient=0.5, max_hints=4))

    def chosen(seed: int, config: RLConfig = on) -> list[str]:
        found = hints_of(group, config, renderer, seed=seed)
        return [renderer.text(turn.tokens[-turn.turn_tokens :])[10:13] for turn in found]

    assert sorted(chosen(0)) == ["ant", "bee", "cat", "dog"], "one each before anybody has two"
    assert chosen(0) == chosen(0)
    orders = {tuple(chosen(seed)) for seed in range(8)}
    assert len(orders) > 3
    few = toy_rl(textual_feedback=TextualFeedbackConfig(coefficient=0.5, max_hints=1))
    firsts = {name for seed in range(24) for name in chosen(seed, few)}
    assert len(firsts) == 4, "the last rollout gets hints too"


# -- the loss -------------------------------------------------------------------------------------------------------


TURN = HintedTurn(rule="r", tokens=[1, 2, 3, 9, 10], hinted_tokens=[1, 2, 20, 21, 3, 9, 10], turn_tokens=2)


def clear_model():
    """A tiny policy whose context matters: the random one says nearly the same after any."""
    model = tiny_model()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)
    return model


def turn_logps(model, rows, turns, temperature):
    return logps(model, turn_states(model, rows, turns), temperature)


def test_student_comes_to_do_without_the_hint_what_it_does_with_it() -> None:
    model = clear_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def distance() -> float:
        with torch.no_grad():
            said = [turn_logps(model, [row], [TURN], 1.0) for row in (TURN.hinted_tokens, TURN.tokens)]
        return float(bucket_kl(said[0], said[1], top_k=0).mean())

    before = distance()
    for _ in range(30):
        values = add_gradients(model, [TURN], ON, temperature=1.0, divisor=1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert values["feedback/turns"] == 1
    assert distance() < 0.3 * before


def test_gradients_are_those_of_the_turns_positions_only() -> None:
    """The same turn behind a context whose last positions have other targets: only what predicts the turn moves."""
    model = tiny_model()
    add_gradients(model, [TURN], ON.model_copy(update={"top_k": 0}), temperature=1.0, divisor=2.0)
    got = model.lm_head.weight.grad.clone()
    model.zero_grad()
    with torch.no_grad():
        teacher_NV = turn_logps(model, [TURN.hinted_tokens], [TURN], 1.0)
    logps_TV = torch.log_softmax(model(torch.tensor([TURN.tokens])).logits[0].float(), -1)
    (teacher_NV.exp() * (teacher_NV - logps_TV[2:4])).sum().div(2.0).backward()
    torch.testing.assert_close(got, model.lm_head.weight.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "lm_head_chunk_size", "close"), [("float32", 1, 1e-5), ("bfloat16", 0, 0.05), ("bfloat16", 40, 0.05)]
)
def test_logits_some_at_a_time_and_half_precision_give_the_same_gradients(precision, lm_head_chunk_size, close) -> None:
    def gradients(**settings) -> torch.Tensor:
        model = clear_model()
        add_gradients(model, [TURN], ON, temperature=0.8, divisor=1.0, **settings)
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    whole = gradients()
    got = gradients(precision=precision, lm_head_chunk_size=lm_head_chunk_size)
    assert float((got - whole).norm()) < close * float(whole.norm())


def test_no_more_logits_exist_than_are_allowed(monkeypatch) -> None:
    seen: list[int] = []
    real = torch.log_softmax
    monkeypatch.setattr(torch, "log_softmax", lambda x, dim: seen.append(x.numel()) or real(x, dim=dim))
    model = clear_model()
    long = TURN.model_copy(
        update={"tokens": list(range(1, 20)), "hinted_tokens": [30, *range(1, 20)], "turn_tokens": 12}
    )
    add_gradients(model, [long], ON, temperature=1.0, divisor=1.0, lm_head_chunk_size=100)
    assert max(seen) <= 100 and sum(seen) >= 2 * 12 * 32  # teacher and student, and again in the backward pass


def test_a_hint_that_moves_nothing_is_dropped() -> None:
    model = tiny_model()
    nothing = TURN.model_copy(update={"hinted_tokens": TURN.tokens})
    values = add_gradients(model, [nothing], TextualFeedbackConfig(coefficient=1.0), temperature=1.0, divisor=1.0)
    assert values["feedback/dropped"] == 1.0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_token_counts_at_most_the_cap() -> None:
    model = clear_model()

    def norm(cap: float) -> float:
        model.zero_grad()
        config = ON.model_copy(update={"max_token_kl": cap})
        add_gradients(model, [TURN], config, temperature=1.0, divisor=1.0)
        return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))

    assert norm(0.01) < 0.1 * norm(100.0)


def test_the_bucket_keeps_it_a_divergence() -> None:
    torch.manual_seed(0)
    teacher, student = torch.randn(200, 50).log_softmax(-1), torch.randn(200, 50).log_softmax(-1)
    whole = bucket_kl(teacher, student, top_k=0)
    for k in (1, 4, 16):
        part = bucket_kl(teacher, student, top_k=k)
        assert (part >= -1e-5).all() and (part <= whole + 1e-4).all()
    torch.testing.assert_close(bucket_kl(teacher, teacher, top_k=4), torch.zeros(200), atol=1e-5, rtol=0)


def test_only_a_coefficient_turns_it_on() -> None:
    model = tiny_model()
    group = TrainGroup(
        group_id="g", prompt_index=0, dispatched_version=0, oldest_version=0, rewards=[], samples=[], hints=[TURN]
    )
    assert learn_from_hints(model, [group], toy_rl()) == {}
    assert all(parameter.grad is None for parameter in model.parameters())
    assert learn_from_hints(model, [group], toy_rl(textual_feedback=ON))["feedback/turns"] == 1
    assert any(parameter.grad is not None for parameter in model.parameters())


# -- the language model ---------------------------------------------------------------------------------------------


class Endpoints(BaseHTTPRequestHandler):
    """A real endpoint whose model always advises about turn 1 (and about one that does not exist)."""

    asked: list[dict] = []
    about = ""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Endpoints.asked.append(body)
        record = Endpoints.about or body["messages"][1]["content"].splitlines()[0]
        hints = [{"turn": 7, "hint": "not a turn at all"}, {"turn": 1, "hint": "Reminder: use grep to search."}]
        said = json.dumps({"choices": [{"message": {"content": json.dumps({"record": record, "hints": hints})}}]})
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def endpoint():
    server = HTTPServer(("127.0.0.1", 0), Endpoints)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Endpoints.asked.clear()
    Endpoints.about = ""
    yield Endpoint(f"http://127.0.0.1:{server.server_port}", "a-model", timeout=20)
    server.shutdown()
    thread.join()


def test_a_language_model_writes_hints_once_a_record(endpoint: Endpoint, wrong_tool: Trajectory) -> None:
    class Memory(dict):
        put = dict.__setitem__

    writer = HintWriter(endpoint, cache=Memory())
    assert writer.hints(wrong_tool) == [Hint(1, "model", "Reminder: use grep to search.")]
    assert writer.hints(wrong_tool) == [Hint(1, "model", "Reminder: use grep to search.")]
    (asked,) = Endpoints.asked
    assert "passed" not in asked["messages"][1]["content"]


def test_hints_for_another_record_are_refused(endpoint: Endpoint, wrong_tool: Trajectory) -> None:
    Endpoints.about = "record-of-somebody-else"
    with pytest.raises(JudgeError, match="another record"):
        HintWriter(endpoint).hints(wrong_tool)
