"""Trains the draft head of a policy in a folder. Training stages do the same for the policy they trained
(`mtp.num_speculative_tokens`).

`python -m trainer.inference.mtp.training --policy DIR --tokens FILE` learns from the policy's own rollouts and writes
`DIR/mtp`. FILE has one context window per line (`manage.py tokens RUN` writes one). Without it the policy samples text
freely, which differs much from its text between observations.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, shape_of
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.errors import ServerError
from trainer.inference.mtp.distil import Distillation, Here, distil, windows
from trainer.policy import load
from trainer.policy.names import checkpoint_state


def read_tokens(path: Path, vocabulary: int) -> Iterator[list[int]]:
    """Read a file with one {"tokens": [...]} per line. Raises ValueError naming the line."""
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
    """Prompts with `new` sampled tokens after each, by the embedded engine."""
    shape = shape_of(model.config.to_dict())
    decoder = build_decoder(shape, checkpoint_state(model, model.state_dict()), shape.max_position_embeddings)
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
    head, loss = distil(Here(model), sequences, Distillation(steps=given.steps, ahead=given.ahead))
    path = head.save(given.policy)
    sys.stdout.write(f"{path}: KL {loss:.4f} nats a token, mean of {given.ahead} tokens ahead\n")


if __name__ == "__main__":
    main()
