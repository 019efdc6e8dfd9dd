"""The engine on another device than the CPU: nothing stays behind, and what it says is what it says on the CPU.

The device is a double with real values (`tests/trainer/other_device.py`): a tensor that was left on the CPU fails a test here.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from transformers import PreTrainedModel

from tests.trainer.inference import models
from tests.trainer.other_device import other_device
from tests.trainer.router_replay import moe
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.devices import CPU, place
from trainer.inference.embedded.factory import build_decoder, build_weights
from trainer.inference.embedded.hf_moe import LibraryShape
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.embedded.speculative import Drafter
from trainer.inference.errors import ServerError
from trainer.policy.names import build_from_state, checkpoint_state

pytestmark = pytest.mark.integration

LIMITS = Limits(max_num_seqs=4, prefill_tokens=24, max_context=128)
"""Few slots: requests wait, slots are moved together, idle sessions are evicted."""


def asked(**fields: object) -> list[GenerateRequest]:
    """Requests of all kinds: long and short prompts, two of one group, turns of sessions, greedy, top-k."""
    prompts = [moe.tokens(1, 50)[0].tolist(), [3, 5, 7], [9] * 20, [9] * 20, [8, 1], [3, 5, 7, 11], [2] * 30]
    own: list[dict[str, object]] = [{}, {"session": "a"}, {}, {}, {"temperature": 0.0}, {"session": "b"}, {"top_k": 5}]
    made = {"max_tokens": 9, "temperature": 0.9} | fields
    return [
        GenerateRequest.model_validate(made | one | {"prompt_ids": prompt, "seed": n, "max_tokens": 4 + 2 * n})
        for n, (prompt, one) in enumerate(zip(prompts, own, strict=True))
    ]


def answers(runner: Runner, requests: list[GenerateRequest]) -> list[GenerateResponse]:
    found: dict[int, GenerateResponse | ServerError] = {}
    for number, request in enumerate(requests):
        runner.submit(Job(request, time.monotonic() + 60, lambda a, at=number: found.update({at: a})))  # type: ignore[misc]
    while runner.busy:
        assert runner.step() >= 0
    made = [found[number] for number in range(len(requests))]
    assert all(isinstance(answer, GenerateResponse) for answer in made), made
    return made  # type: ignore[return-value]


def played(family: str, device: torch.device, head: MultiToken | None = None) -> list[GenerateResponse]:
    """Two rounds of requests with a swap of weights in between, the second with turns of the first's sessions."""
    with_experts = "moe" in family or family in {"mixtral", "deepseek-v3"}
    model, other = (moe.make(family, seed=n) if with_experts else models.make(family, n) for n in (0, 1))
    shape = (LibraryShape if with_experts else DecoderShape).from_config(model.config.to_dict())
    states = [checkpoint_state(m, m.state_dict()) if with_experts else m.state_dict() for m in (model, other)]
    decoder = build_decoder(shape, states[0], LIMITS.max_context, compiled=False, device=device)
    assert decoder.device == device and decoder.loops is None
    runner = Runner(LIMITS)
    cache = make_cache(decoder, LIMITS)
    assert cache.data.device == device
    runner.install(decoder, cache, 0, Drafter(head.to(device), 2, None) if head is not None else None)
    fields = {"experts_from": 0} if with_experts else {}
    first = answers(runner, asked(**fields))
    longer = asked(**fields)
    longer[1] = longer[1].model_copy(update={"prompt_ids": [*longer[1].prompt_ids, *first[1].token_ids, 4]})
    again = answers(runner, longer)
    runner.swap(build_weights(shape, states[1], compiled=False, device=device), 1)
    return first + again + answers(runner, asked(**fields))


@pytest.mark.parametrize(
    "family",
    [
        "qwen3",
        pytest.param("qwen2", marks=pytest.mark.slow),
        pytest.param("qwen3-moe", marks=pytest.mark.slow),
        "deepseek-v3",
    ],
)
def test_another_device_answers_as_the_cpu(family: str) -> None:
    answers_as_the_cpu(family)


def answers_as_the_cpu(family: str, head: MultiToken | None = None) -> None:
    built: list[PreTrainedModel] = []

    def building(*arguments: Any, **others: Any) -> PreTrainedModel:
        built.append(build_from_state(*arguments, **others))
        return built[-1]

    with patch("trainer.inference.embedded.hf_moe.build_from_state", building):
        here = played(family, CPU, head)
    # The library builds on its own `meta`, which is the double's name: what it built before is moved there instead.
    made = iter(built)
    with patch("trainer.inference.embedded.hf_moe.build_from_state", lambda *_, **__: next(made)):
        with other_device() as device:
            there = played(family, device, head)
    assert next(made, None) is None
    for wanted, found in zip(here, there, strict=True):
        assert found.token_ids == wanted.token_ids and found.spans == wanted.spans
        assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-5)
        assert found.reused_tokens == wanted.reused_tokens
        assert (found.experts is None) == (wanted.experts is None)
        if found.experts is not None and wanted.experts is not None:
            assert (found.experts.unpack() == wanted.experts.unpack()).all()
    assert sum(answer.reused_tokens for answer in here) > 0 and {s.version for a in here for s in a.spans} == {0, 1}


@pytest.mark.parametrize("family", ["qwen3", pytest.param("mixtral", marks=pytest.mark.slow)])
def test_tokens_are_drafted_there_too(family: str) -> None:
    torch.manual_seed(0)
    head = MultiToken(models.BASE["hidden_size"], 16)
    torch.nn.init.normal_(head.back.weight, std=0.1)
    answers_as_the_cpu(family, head)


def test_the_device_is_chosen_or_missing_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place("cpu") == CPU
    for wrong in ("gpu", "cpu:0", "cpu:", "cuda:", "cuda:x", "cuda:-1", "cuda:0,", "cuda:0,x", ""):
        with pytest.raises(ValueError, match="it is cpu, cuda, cuda:N or cuda:N,N"):
            place(wrong)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch can use 0 GPUs of this machine; set OPENCOMPOSER_ENGINE_DEVICE=cpu"):
        place("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (place("cuda"), place("cuda:1")) == (torch.device("cuda", 0), torch.device("cuda", 1))
    with pytest.raises(ValueError, match="'cuda:2', and torch can use 2 GPUs"):
        place("cuda:2")
    with pytest.raises(ValueError, match="'cuda:0,2', and torch can use 2 GPUs"):
        place("cuda:0,2")


class Gpus:
    """What torch says of a machine with GPUs."""

    def __init__(self, count: int) -> None:
        self.count = count

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: self.count)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda d: SimpleNamespace(uuid=f"gpu-{d.index}"))


CLAIM = """
import sys, torch
from pathlib import Path
from tests.trainer.inference.test_places import Gpus
from trainer.inference.embedded.devices import place
import pytest
with pytest.MonkeyPatch.context() as patch:
    Gpus(int(sys.argv[2])).put(patch)
    print(place(sys.argv[1], Path(sys.argv[3])).index, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_engines_of_a_machine_spread_over_its_gpus_until_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As processes: what claims a GPU is the kernel's lock, which goes with the process."""
    started: list[subprocess.Popen[str]] = []

    def engine(name: str) -> int:
        command = [sys.executable, "-c", CLAIM, name, "3", str(tmp_path / "gpus")]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None
        return int(started[-1].stdout.readline())

    try:
        assert [engine("cuda"), engine("cuda"), engine("cuda:1")] == [2, 1, 1]
        assert engine("cuda") == 0, "nobody's yet, though engines were started after its turn"
        assert engine("cuda:0,1") == 0, "the second of GPU 0; GPU 1 has two"
        started[0].kill()
        started[0].wait()
        assert engine("cuda") == 2
    finally:
        for process in started:
            process.kill()
            process.communicate()
    Gpus(3).put(monkeypatch)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot hold the claims of engines on GPUs .*: let this account write there"):
        place("cuda", tmp_path / "file" / "gpus")
    assert place("cpu", tmp_path / "file" / "gpus") == CPU
