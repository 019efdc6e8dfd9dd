"""The inference server of this installation, as OPENCOMPOSER_INFERENCE_ENGINE and OPENCOMPOSER_INFERENCE_URL say.

Whichever engine computes, the product speaks one contract (`trainer.inference.contract`): the embedded server answers
by itself, a router and the server in front of vLLM pass on. Errors of this module name the setting to look at.
"""

from __future__ import annotations

from composer_web.env import env
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    InferenceError,
    InferenceRefused,
    ServerHealth,
)

ROUTER = "router"
"""Stands before engines of any kind, so it fits either setting."""


def client() -> HttpInferenceClient:
    """For generating, on one event loop."""
    return HttpInferenceClient(env().inference_url)


def admin(*, timeout: float = 60.0) -> InferenceAdmin:
    return InferenceAdmin(env().inference_url, timeout=timeout)


def health(*, timeout: float = 3.0) -> ServerHealth:
    """What the server says of itself, well or not. Raises InferenceError; InferenceRefused when it is another kind of
    server than the settings say."""
    settings = env()
    try:
        with admin(timeout=timeout) as server:
            found = server.health()
    except InferenceRefused as error:
        raise InferenceRefused(
            f"{error} OPENCOMPOSER_INFERENCE_URL must name the embedded server or the server in front of vLLM "
            "(`python -m trainer.inference.vllm.server`), never vLLM itself"
        ) from error
    except InferenceError as error:
        raise InferenceError(
            f"{error} OPENCOMPOSER_INFERENCE_URL says where it is, `make status` whether it runs"
        ) from error
    if found.engine not in {settings.inference_engine, ROUTER}:
        raise InferenceRefused(
            f"OPENCOMPOSER_INFERENCE_ENGINE is {settings.inference_engine!r} and the server at {settings.inference_url} "
            f"is {found.engine!r}: set OPENCOMPOSER_INFERENCE_ENGINE={found.engine}, or point "
            "OPENCOMPOSER_INFERENCE_URL to the other server"
        )
    return found


def deploy(spec: DeploymentSpec) -> DeploymentStatus:
    """Have `spec` served; idempotent. Raises InferenceRefused when it never will be, else InferenceError."""
    health(timeout=10.0)
    with admin() as server:
        return server.deploy(spec)
