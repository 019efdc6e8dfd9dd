"""A task family that outgrows its window: what to return stands in the first file, and a chain of files leads to where.

Each file names the next one among lines that mean nothing; the last one names `answer.py`, from which the number, seen once
and long ago, is to be returned. With windows that hold a fifth of the work, the number and the place in the chain survive
only in what the policy writes into its summaries. An attempt that guesses the number is right once in 64 times.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from sandbox.tasks.procedural.vocabulary import Split, sample_words
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from trainer import policy as policies
from trainer.inference.contract import GenerateRequest, GenerateResponse, VersionSpan

FILES = 13
FILLER = 7
ANSWER = "answer.py"


def relay(seed: int, split: Split, *, files: int = FILES, filler: int = FILLER) -> TaskSpec:
    """A task as a pure function of its arguments. The two splits share no word and no name. `filler`: lines of a file that mean
    nothing."""
    rng = random.Random(f"relay:{split}:{seed}")
    # Every digit occurs at every place in both splits; a policy that can copy a name can copy those of the other split.
    numbers = rng.sample([number for number in range(100, 1000) if (number % 7 < 4) == (split == "train")], files)
    names = [f"p{number}.py" for number in numbers]
    fillers = list(dict.fromkeys(sample_words(rng, split, 3 * files)))
    code = f"{rng.randint(2, 9)}{rng.randint(2, 9)}"

    def body(index: int) -> str:
        lines = [f"{rng.choice(fillers)} = {rng.choice(fillers)} + {rng.randint(2, 9)}" for _ in range(filler)]
        lines.insert(rng.randrange(filler), f"next {[*names, ANSWER][index + 1]}")
        if index == 0:
            lines.insert(rng.randrange(filler), f"return {code}")
        return "\n".join(lines) + "\n"

    texts = {name: body(index) for index, name in enumerate(names)}
    empty = "def answer():\n    pass\n"
    return TaskSpec(
        id=f"relay-{split}-{seed:05d}",
        source="procedural",
        instruction=f"Begin with {names[0]}. Answer in {ANSWER}.",
        environment=InlineEnvironment(files={**texts, ANSWER: empty}),
        verifier=CallsVerifier(module=ANSWER, function="answer", cases=(("()", code),)),
        gold={ANSWER: empty.replace("pass", f"return {code}")},
        family="relay",
    )


class Expert:
    """An inference client that plays the family by what stands in its context, and summarizes carelessly.

    Each of the two facts that matter gets into a summary with probability `keep`.
    """

    def __init__(self, renderer: policies.ChatRenderer, *, keep: float) -> None:
        self.renderer = renderer
        self.keep = keep

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        rng = random.Random(f"expert:{request.seed}")
        text = str(self.renderer.tokenizer.decode(request.prompt_ids, skip_special_tokens=False))
        ids = [*self.renderer.tokenizer(self.say(text, rng), add_special_tokens=False)["input_ids"]]
        ids.append(self.renderer.turn_end_id)
        return GenerateResponse(
            token_ids=ids[: request.max_tokens],
            logprobs=[0.0] * min(len(ids), request.max_tokens),
            spans=[VersionSpan(version=0, start=0, end=min(len(ids), request.max_tokens))],
            finish_reason="stop" if len(ids) <= request.max_tokens else "length",
        )

    def say(self, text: str, rng: random.Random) -> str:
        code, place = _last(r"return (\d\d)", text), _last(r"(?:next |Begin with )(\w+\.py)", text)
        if text.rstrip().endswith("<|assistant|>") and "Please summarize" in text:
            facts: Sequence[str] = (f"return {code}" if code else "", f"next {place}")
            return f"<summary>{', '.join(fact for fact in facts if fact and rng.random() < self.keep)}</summary>"
        if f"edited {ANSWER}" in text:
            return '{"name": "finish", "arguments": {}}'
        if "def answer" in text:
            edit = f'"path": "{ANSWER}", "old_string": "pass", "new_string": "return {code or 0}"'
            return f'{{"name": "edit_file", "arguments": {{{edit}}}}}'
        return f'{{"name": "read_file", "arguments": {{"path": "{place}"}}}}'


def _last(pattern: str, text: str) -> str:
    found = re.findall(pattern, text)
    return str(found[-1]) if found else ""
