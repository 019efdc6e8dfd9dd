"""Weight verification in the embedded engine, before any request uses the weights; runs beside generation.

The probe takes the same path as requests (batch, cache, loops, sampling), in a runner of its own.
"""

from __future__ import annotations

import math
from functools import partial

from trainer.inference.contract import GenerateResponse
from trainer.inference.embedded.model import Decoder
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.errors import ServerError
from trainer.inference.verify_weights import judge, questions
from trainer.weights.probe import Probe


def verify_weights(decoder: Decoder, probe: Probe, *, deployment: str, version: int, max_context: int) -> float | None:
    """Gap in nats; None where no prompt of the probe fits. Blocks. Raises WeightMismatch. `decoder` must not be in use."""
    room = min(max_context, decoder.shape.max_position_embeddings)
    rows = [row for row in probe.rows if len(row.prompt_ids) < room]
    if not rows:
        return None
    fitting = probe.model_copy(update={"rows": rows})
    limits = Limits(max_num_seqs=len(rows), max_context=1 + max(len(row.prompt_ids) for row in rows))
    runner = Runner(limits)
    runner.install(decoder, make_cache(decoder, limits), version)
    answers: dict[int, GenerateResponse | ServerError] = {}
    for place, request in enumerate(questions(fitting, deployment)):
        runner.submit(Job(request, math.inf, partial(answers.__setitem__, place)))
    while runner.busy:
        runner.step()
    said = []
    for place in range(len(rows)):
        answer = answers[place]
        if isinstance(answer, ServerError):
            raise answer
        said.append(answer)
    return judge(fitting, said, deployment=deployment, version=version, where="the embedded engine")
