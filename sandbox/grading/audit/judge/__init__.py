"""An optional reader of trajectories: a language model behind an OpenAI-compatible endpoint. See docs/sandbox/grading.md."""

from sandbox.grading.audit.judge.client import Answer, Endpoint, Judge, JudgeError, Opinion
from sandbox.grading.audit.judge.rubric import rubric, titles

__all__ = ["Answer", "Endpoint", "Judge", "JudgeError", "Opinion", "rubric", "titles"]
