"""The engine that is configured and the one that answers: `auto` takes either, and every page says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from composer_web.core import inference
from composer_web.env import env
from composer_web.runs import defaults
from composer_web.system.health import _inference
from trainer.inference.contract import InferenceError, InferenceRefused, ServerHealth


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A vLLM server answers at the address of the inference server."""
    server = SimpleNamespace(health=lambda: ServerHealth(ok=True, engine="vllm"))
    monkeypatch.setattr(inference, "admin", lambda timeout: nullcontext(server))
    defaults._engines.clear()
    yield monkeypatch
    defaults._engines.clear()


def test_auto_takes_the_engine_that_answers_and_says_which(answering: pytest.MonkeyPatch) -> None:
    answering.setattr(env(), "inference_engine", "auto")
    assert inference.health().engine == "vllm"
    ok, words, _ = _inference()
    assert ok and words.startswith("vllm (OPENCOMPOSER_INFERENCE_ENGINE is auto)")
    assert defaults.serving_engine() == ("vllm", f"the server at {env().inference_url}")


def test_a_chosen_engine_is_the_only_one_that_is_taken(answering: pytest.MonkeyPatch) -> None:
    answering.setattr(env(), "inference_engine", "embedded")
    with pytest.raises(InferenceRefused, match="set OPENCOMPOSER_INFERENCE_ENGINE=vllm"):
        inference.health()
    answering.setattr(env(), "inference_engine", "vllm")
    assert _inference()[1].startswith("vllm, ")


def test_without_an_answer_a_run_is_told_what_auto_chose_and_why(answering: pytest.MonkeyPatch) -> None:
    def silent(timeout: float) -> None:
        raise InferenceError("nobody there.")

    answering.setattr(inference, "admin", silent)
    answering.setattr(env(), "inference_engine", "auto")
    answering.setattr(env(), "vllm_urls", "http://gpu1:8000")
    kind, how = defaults.serving_engine()
    assert kind == "vllm" and "chosen by auto, because OPENCOMPOSER_VLLM_URLS names servers" in how
    assert "does not answer" in how
