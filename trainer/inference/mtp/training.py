"""Self-distillation of the head: the frozen policy's own distributions over tokens that it sampled are the targets.

`python -m trainer.inference.mtp.training --policy DIR --tokens FILE` learns from what the policy did at its work and writes
`DIR/mtp`; FILE has a context window a line (`manage.py tokens RUN` writes one). Without it the policy speaks to itself, which
is far from how it speaks between observations.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.jobs import Job
from trainer.inference.embedded.kinds import build_decoder
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.errors import ServerError
from trainer.inference.mtp.head import MultiToken
from trainer.policy import load


@dataclass(frozen=True)
class Distillation:
    """How the head is trained."""

    ahead: int = 3
    """Tokens that it learns to guess beyond the policy's own next one."""
    width: int = 256
    steps: int = 400
    batch: int = 8
    """Sequences a step."""
    learning_rate: float = 3e-3
    seed: int = 0


def distil(model: PreTrainedModel, sequences: Sequence[Sequence[int]], how: Distillation) -> tuple[MultiToken, float]:
    """The head, and the mean KL (nats a token) of the last tenth of its steps. `sequences` are of one length.

    Loss: KL(policy at t + k ‖ head k tokens ahead of t), mean over positions and k.
    """
    tokens_ST = torch.tensor([list(sequence) for sequence in sequences])
    generator = torch.Generator().manual_seed(how.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(how.seed)
        head = MultiToken(int(model.config.hidden_size), how.width)
    optimizer = torch.optim.AdamW(head.parameters(), lr=how.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps)
    losses: list[float] = []
    for _ in range(how.steps):
        chosen = torch.randint(len(tokens_ST), (how.batch,), generator=generator)
        loss = _loss(model, head, tokens_ST[chosen], how.ahead)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    last = losses[-max(1, how.steps // 10) :]
    return head.eval(), sum(last) / len(last)


def _loss(model: PreTrainedModel, head: MultiToken, tokens_BT: torch.Tensor, ahead: int) -> torch.Tensor:
    output = model.get_output_embeddings()
    with torch.no_grad():
        state = hidden_BTC = model.get_decoder()(input_ids=tokens_BT, use_cache=False).last_hidden_state
        wanted_BTV = torch.log_softmax(output(hidden_BTC), -1)
        embedded_BTC = model.get_input_embeddings()(tokens_BT)
    losses = []
    for k in range(1, ahead + 1):
        state = head(state[:, :-1], embedded_BTC[:, k:])
        guessed_BTV = torch.log_softmax(F.linear(state, output.weight.detach()), -1)
        losses.append(F.kl_div(guessed_BTV, wanted_BTV[:, k:], log_target=True, reduction="none").sum(-1).mean())
    return torch.stack(losses).mean()


def windows(sequences: Iterable[Sequence[int]], length: int) -> list[list[int]]:
    """Sequences one after the other, cut to `length`. Raises ValueError where they do not fill one."""
    whole = [token for sequence in sequences for token in sequence]
    if len(whole) < length:
        raise ValueError(f"{len(whole)} tokens do not fill a window of {length}; give more, or make it shorter")
    return [whole[at : at + length] for at in range(0, len(whole) - length + 1, length)]


def read_tokens(path: Path, vocabulary: int) -> Iterator[list[int]]:
    """Of a file with {"tokens": [...]} a line. Raises ValueError, which names the line."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                tokens = json.loads(line)["tokens"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f'{path}:{number}: a line is {{"tokens": [...]}}: {error!r}') from error
            if not all(isinstance(token, int) and 0 <= token < vocabulary for token in tokens):
                raise ValueError(f"{path}:{number}: a token id is outside [0, {vocabulary}); it is of another policy")
            yield tokens


def sampled(model: PreTrainedModel, prompts: Sequence[list[int]], new: int, temperature: float) -> list[list[int]]:
    """Prompts with what the policy says after each: `new` tokens, by the embedded engine."""
    shape = DecoderShape.from_config(model.config.to_dict())
    decoder = build_decoder(shape, model.state_dict(), shape.max_position_embeddings)
    runner = Runner(Limits(max_queue=len(prompts)))
    runner.install(decoder, make_cache(decoder, runner.limits), 0)
    answers: dict[int, GenerateResponse | ServerError] = {}
    for number, prompt in enumerate(prompts):
        request = GenerateRequest(prompt_ids=prompt, max_tokens=new, temperature=temperature, seed=number)
        runner.submit(Job(request, time.monotonic() + 3600, lambda answer, at=number: answers.update({at: answer})))  # type: ignore[misc]
    while runner.busy:
        runner.step()
    sequences = []
    for number, prompt in enumerate(prompts):
        answer = answers[number]
        if isinstance(answer, ServerError):
            raise answer
        sequences.append([*prompt, *answer.token_ids])
    return sequences


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a policy's head for speculative decoding on its own samples")
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, help="what the policy said and read, as JSON lines")
    parser.add_argument("--samples", type=int, default=256, help="without --tokens: that the policy makes of nothing")
    parser.add_argument("--length", type=int, default=192, help="tokens of a sample")
    parser.add_argument("--steps", type=int, default=Distillation.steps)
    parser.add_argument("--ahead", type=int, default=Distillation.ahead)
    given = parser.parse_args()
    model = load(given.policy).model.float().eval()
    vocabulary = int(model.config.vocab_size)
    if given.tokens is not None:
        try:
            sequences = windows(read_tokens(given.tokens, vocabulary), given.length)
        except (ValueError, OSError) as error:
            parser.error(str(error))
    else:
        first = torch.randint(vocabulary, (given.samples, 1), generator=torch.Generator().manual_seed(0))
        sequences = sampled(model, first.tolist(), given.length - 1, 1.0)
    head, loss = distil(model, sequences, Distillation(steps=given.steps, ahead=given.ahead))
    path = head.save(given.policy)
    sys.stdout.write(f"{path}: KL {loss:.4f} nats a token, mean of {given.ahead} tokens ahead\n")


if __name__ == "__main__":
    main()
