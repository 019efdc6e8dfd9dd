"""The inference server configured by OPENCOMPOSER_INFERENCE_ENGINE and OPENCOMPOSER_INFERENCE_URL.

All engines share one contract (`trainer.inference.contract`). The embedded server answers directly; a router and the
server in front of vLLM forward requests. Errors of this module name the relevant setting.
"""

from __future__ import annotations

from composer_web.env import env
from trainer.inference.choosing import AUTO
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    InferenceError,
    InferenceRefused,
    ServerHealth,
)

ROUTER = "router"
"""A router works with engines of any kind, so it fits either setting."""


def client() -> HttpInferenceClient:
    """Client for generation, on one event loop."""
    return HttpInferenceClient(env().inference_url)


def admin(*, timeout: float = 60.0) -> InferenceAdmin:
    return InferenceAdmin(env().inference_url, timeout=timeout)


def health(*, timeout: float = 3.0) -> ServerHealth:
    """Health reported by the server, good or bad. Raises InferenceError, or InferenceRefused if the server is not of
    the configured kind; `auto` takes either."""
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
    if settings.inference_engine != AUTO and found.engine not in {settings.inference_engine, ROUTER}:
        raise InferenceRefused(
            f"OPENCOMPOSER_INFERENCE_ENGINE is {settings.inference_engine!r} and the server at {settings.inference_url} "
            f"is {found.engine!r}: set OPENCOMPOSER_INFERENCE_ENGINE={found.engine}, or point "
            "OPENCOMPOSER_INFERENCE_URL to the other server"
        )
    return found


def deploy(spec: DeploymentSpec) -> DeploymentStatus:
    """Deploy `spec`; idempotent. Raises InferenceRefused for a permanent failure, else InferenceError."""
    health(timeout=10.0)
    with admin() as server:
        return server.deploy(spec)
