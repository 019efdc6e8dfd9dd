"""Scripted users and a tiny policy: what real-time RL does to a policy when its reward has a hole, in a minute on a CPU.

    python -m tests.support.session_simulator [--scenario all] [--cycles 60]

Both published failures, with everything between user and optimiser real (reading of turns, signals, reward, batches with
their baseline, staleness, guards, learner); only the users are scripted and the policy has some ten thousand weights.

* **broken calls.** Requests are easy or hard. Where broken calls are lost before training (`lose_broken`), the policy has
  only edits to learn from; on hard requests edits are disliked, so their probability falls and that of a broken call, which
  never costs anything, rises. As negatives they vanish.
* **questions.** The reward counts edits alone. On hard requests an edit costs more than it brings and a question costs
  nothing, so the policy asks instead of working. The guard on the rates sees it and stops; with a price on questions that do
  nothing it does not happen.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

from sandbox.harness.types import ToolCall
from trainer.config import Guards, ObjectiveConfig, OptimizerConfig
from trainer.learning.importance_sampling import Truncated
from trainer.learning.step import Learner
from trainer.realtime.batch import Freshness, SessionRecord, build
from trainer.realtime.guards import Rates, broken
from trainer.realtime.reading import TurnFacts, facts_of
from trainer.realtime.sessions import RecordedTurn
from trainer.realtime.signals import Signal, SignalReward

PIECES = (
    "<pad>",
    "<user>",
    "easy",
    "hard",
    "<policy>",
    '{"name": "edit_file", "arguments": {"path": "a.py"',
    "}}",
    "<end>",
    "Which file?",
)
PAD, USER, EASY, HARD, POLICY, OPEN, CLOSE, END, ASK = range(len(PIECES))
EDIT, BREAK, QUESTION = (OPEN, CLOSE, END), (OPEN, END), (ASK, END)
TOOLS = ({"type": "function", "function": {"name": "edit_file", "parameters": {"required": ["path"]}}},)
LIKED = {EASY: 0.9, HARD: 0.2}
"""Probability that a user keeps an edit."""
HARD_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class World:
    """What is wrong, or mended. `lose_broken`: sessions with a broken call never reach training."""

    name: str
    reward: SignalReward
    lose_broken: bool = False
    start: tuple[float, float, float] = (0.7, 0.15, 0.15)
    """Shares of edits, broken calls and questions that the policy begins with."""


EDITS_ONLY = SignalReward(accept=1.0, reject=-1.0, edit_kept=0.0, dissatisfied=-1.0, question=0.0, malformed=-1.0)
MENDED = EDITS_ONLY.model_copy(update={"question": -0.8})
SCENARIOS = {
    "broken-hack": World("broken-hack", MENDED, lose_broken=True),
    "broken-fixed": World("broken-fixed", MENDED),
    "questions-hack": World("questions-hack", EDITS_ONLY),
    "questions-fixed": World("questions-fixed", MENDED),
}


@dataclass(slots=True)
class Outcome:
    """Rates by cycle; `on_hard` at the end; `stopped` is the first cycle at which the guard would have stopped the run."""

    name: str
    rates: list[Rates] = field(default_factory=list)
    on_hard: Rates | None = None
    stopped: int | None = None
    why: tuple[str, ...] = ()


def simulate(
    world: World, *, cycles: int = 40, sessions: int = 256, seed: int = 0, guards: Guards | None = None
) -> Outcome:
    """`cycles` of serve, collect, train. The guard watches and its verdict is kept, but the run goes on to show the rest."""
    rng, dice = random.Random(seed), torch.Generator().manual_seed(seed)
    model = _policy(world.start, seed)
    learner = Learner(
        model,
        objective=ObjectiveConfig(loss_divisor=float(sessions)),
        correction=Truncated(2.0),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=0, decay_start=1.0),
        temperature=1.0,
        total_steps=cycles,
        micro_batch_tokens=1 << 14,
    )
    outcome, watch = Outcome(world.name), guards or Guards()
    last: list[tuple[int, RecordedTurn]] = []
    for cycle in range(cycles):
        last = _serve(
            model, [HARD if rng.random() < HARD_SHARE else EASY for _ in range(sessions)], dice, version=cycle
        )
        records = [
            SessionRecord(f"{cycle}-{n}", cycle * sessions + n, (turn,), _signals(kind, turn.facts, rng))
            for n, (kind, turn) in enumerate(last)
            if not (world.lose_broken and turn.facts.malformed)
        ]
        # What users saw is watched, not what was left for training.
        outcome.rates.append(Rates.of([turn.facts for _, turn in last]))
        why = broken(watch, outcome.rates[0], outcome.rates[-1])
        if why and outcome.stopped is None:
            outcome.stopped, outcome.why = cycle, tuple(why)
        freshness = Freshness(start=cycle, max_off_policy_steps=0, temperature=1.0)
        learner.train(build(records, world.reward, freshness, step=1).groups, step=cycle + 1)
    outcome.on_hard = Rates.of([turn.facts for kind, turn in _serve(model, [HARD] * sessions, dice, version=cycles)])
    return outcome


def _signals(kind: int, facts: TurnFacts, rng: random.Random) -> tuple[Signal, ...]:
    """The user keeps or rejects an edit, answers a question, sees nothing of a broken call, and complains of no answer."""
    if facts.edits:
        return (Signal(kind="accept" if rng.random() < LIKED[kind] else "reject", turn=0),)
    if facts.question or facts.malformed:
        return (Signal(kind="edit_kept", turn=0, value=0.0),)
    return (Signal(kind="dissatisfied", turn=0),)


def _policy(start: Sequence[float], seed: int) -> Qwen3ForCausalLM:
    """A policy that begins with the shares `start`, whatever it is asked."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = Qwen3Config(
            vocab_size=len(PIECES), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, max_position_embeddings=32, tie_word_embeddings=False,
        )  # fmt: skip
        model = Qwen3ForCausalLM(config).float()
    rows, weights = [], []
    for kind in (EASY, HARD):
        for said, share in zip((EDIT, BREAK, QUESTION), start, strict=True):
            rows.append([USER, kind, POLICY, *said, *[PAD] * (3 - len(said))])
            weights.append(share)
    ids, weights_B = torch.tensor(rows), torch.tensor(weights)
    asked = ids[:, 3:] != PAD
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        logits = model(ids[:, :-1]).logits[:, 2:]
        losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 3:], reduction="none")
        optimizer.zero_grad()
        (losses * asked * weights_B[:, None]).sum().backward()
        optimizer.step()
    return model


def _serve(
    model: Qwen3ForCausalLM, kinds: Sequence[int], dice: torch.Generator, *, version: int
) -> list[tuple[int, RecordedTurn]]:
    """One session of each kind: sampled, and read as the gateway reads answers."""
    ids = torch.tensor([[USER, kind, POLICY] for kind in kinds])
    chosen = []
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            logprobs = model(ids).logits[:, -1].log_softmax(-1)
            token = torch.multinomial(logprobs.exp(), 1, generator=dice)
            chosen.append((token[:, 0].tolist(), logprobs.gather(1, token)[:, 0].tolist()))
            ids = torch.cat([ids, token], 1)
    model.train()
    return [(kind, _turn(kind, [(t[n], p[n]) for t, p in chosen], version)) for n, kind in enumerate(kinds)]


def _turn(kind: int, sampled: Sequence[tuple[int, float]], version: int) -> RecordedTurn:
    length = next((n + 1 for n, (token, _) in enumerate(sampled) if token == END), len(sampled))
    tokens = [token for token, _ in sampled[:length]]
    text = "".join(PIECES[token] for token in tokens if token != END)
    calls, error = _read(text)
    return RecordedTurn(
        index=0,
        prompt_ids=[USER, kind, POLICY],
        token_ids=tokens,
        logprobs=[logprob for _, logprob in sampled[:length]],
        loss_mask=[1] * length,
        versions=[version] * length,
        text=text,
        facts=facts_of(text=text, calls=calls, error=error, tools=TOOLS),
    )


def _read(text: str) -> tuple[tuple[ToolCall, ...], str | None]:
    if not text.startswith("{"):
        return (), None
    try:
        value = json.loads(text)
        return (ToolCall(id="call_0", name=value["name"], arguments=value["arguments"]),), None
    except (ValueError, KeyError) as error:
        return (), f"the tool call does not parse: {error}"


def report(outcome: Outcome) -> dict[str, object]:
    first, end, hard = outcome.rates[0], outcome.rates[-1], outcome.on_hard
    assert hard is not None
    return {
        "scenario": outcome.name,
        "before": {
            "edit": round(first.edit, 3),
            "question": round(first.question, 3),
            "broken": round(first.malformed, 3),
        },
        "after": {"edit": round(end.edit, 3), "question": round(end.question, 3), "broken": round(end.malformed, 3)},
        "hard_after": {
            "edit": round(hard.edit, 3),
            "question": round(hard.question, 3),
            "broken": round(hard.malformed, 3),
        },
        "guard_stops_at_cycle": outcome.stopped,
        "because": list(outcome.why),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay both published failures of real-time RL, and their fixes")
    parser.add_argument("--scenario", default="all", choices=["all", *SCENARIOS])
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=256, help="of one cycle")
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    torch.set_num_threads(1)
    for name in SCENARIOS if o.scenario == "all" else [o.scenario]:
        made = simulate(SCENARIOS[name], cycles=o.cycles, sessions=o.sessions, seed=o.seed)
        sys.stdout.write(json.dumps(report(made)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
