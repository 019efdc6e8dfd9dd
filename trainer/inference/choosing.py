"""Which engine `OPENCOMPOSER_INFERENCE_ENGINE` stands for: every process asks here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

AUTO: Literal["auto"] = "auto"
Engine = Literal["embedded", "vllm"]
ENGINES: tuple[Engine, ...] = ("embedded", "vllm")
OURS = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Chosen:
    engine: Engine
    why: str
    """Continues "because"; empty where a person chose."""

    def __str__(self) -> str:
        return f"{self.engine} (chosen by auto, because {self.why})" if self.why else self.engine


def choose_engine(asked: Engine | Literal["auto"], vllm_urls: str) -> Chosen:
    """`auto` is vLLM wherever servers of it are named and a GPU may compute, else the embedded engine.

    On CPUs the embedded engine was measured faster than vLLM's CPU build (docs/benchmarks.md), so a vLLM server of this
    machine is chosen only beside a GPU. Servers of other machines cannot be looked at and are taken at their word.
    """
    return _by_hardware(vllm_urls, gpu=has_gpu()) if asked == "auto" else Chosen(asked, "")


def has_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU. Asked without torch, which takes seconds to import."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _by_hardware(urls: str, *, gpu: bool) -> Chosen:
    hosts = {urlsplit(url.strip()).hostname for url in urls.split(",") if url.strip()}
    if not hosts:
        return Chosen("embedded", "OPENCOMPOSER_VLLM_URLS names no vLLM server")
    if hosts - OURS:
        return Chosen("vllm", "OPENCOMPOSER_VLLM_URLS names servers on other machines")
    if gpu:
        return Chosen("vllm", "OPENCOMPOSER_VLLM_URLS names a server on this machine, which has a GPU")
    return Chosen(
        "embedded", "this machine has no GPU, and on a CPU the embedded engine is faster than vLLM's CPU build"
    )
