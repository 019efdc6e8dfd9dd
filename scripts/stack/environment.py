"""The addresses and secrets of a running stack, kept in `<data>/run/env` so that commands typed by hand find it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.inference.choosing import AUTO, ENGINES, choose_engine
from trainer.inference.discovery import REPLICAS, ReplicaSpec, read_replicas, server_urls
from trainer.inference.errors import BadRequest

from . import ports, postgres, valkey
from .errors import StackError
from .layout import REPOSITORY, Layout

DEFAULT_PORT = 8800
MAX_ENGINES = 64
MAX_SPECULATED = 8
STACK = "stack"  # the cluster of the engines that the supervisor starts
MARK = "OPENCOMPOSER_STACK"  # in the environment of each of our processes, so that none of ours is ever mistaken


@dataclass(frozen=True, slots=True)
class Addresses:
    """Everything that was chosen for this start of the stack."""

    host: str
    port: int
    engine: str
    vllm_urls: str
    inference_port: int
    valkey: valkey.Endpoint
    mark: str
    engine_ports: tuple[int, ...] = ()
    """Ports of several embedded engines behind a router at `inference_port`; empty: one engine, no router."""
    speculate: int = 0
    """Draft tokens of embedded engines."""
    mirrors: tuple[tuple[str, str], ...] = ()
    """Tools that receive the metrics of all runs, with their addresses."""


def choose() -> Addresses:
    """Pick free ports. A web port that the user named must be free; the default one may give way to the next."""
    engine, vllm_urls = inference_engine(os.environ)
    engines = engine_count(os.environ, engine)
    host = os.environ.get("OPENCOMPOSER_HOST") or "127.0.0.1"
    asked = os.environ.get("OPENCOMPOSER_PORT")
    if asked:
        if not asked.isdigit() or not 0 < int(asked) < 65536:
            raise StackError(f"OPENCOMPOSER_PORT (PORT=…) must be a number from 1 to 65535, found {asked!r}")
        port = int(asked)
        if not ports.is_free(port, host):
            raise StackError(f"port {port} of {host} is taken: stop what listens there, or choose another (PORT=…)")
    else:
        port = ports.first_free(range(DEFAULT_PORT, DEFAULT_PORT + 100), host)
        if port != DEFAULT_PORT:
            print(f"port {DEFAULT_PORT} is taken; using {port}", flush=True)
    return Addresses(
        host=host,
        port=port,
        engine=engine,
        vllm_urls=vllm_urls,
        inference_port=ports.any_free(),
        valkey=valkey.Endpoint.fresh(ports.any_free()),
        mark=secrets.token_hex(8),
        speculate=speculation(os.environ, engine),
        engine_ports=tuple(ports.any_free() for _ in range(engines)) if engines > 1 else (),
        mirrors=mirrors(os.environ),
    )


def inference_engine(variables: Mapping[str, str]) -> tuple[str, str]:
    """The engine that the user chose, and the addresses of vLLM servers. Raises StackError."""
    engine = variables.get("OPENCOMPOSER_INFERENCE_ENGINE") or "embedded"
    urls = variables.get("OPENCOMPOSER_VLLM_URLS") or ""
    if engine == AUTO:
        chosen = choose_engine(AUTO, urls)
        engine = chosen.engine
        print(f"inference engine: {engine}, because {chosen.why}", flush=True)
    if engine not in ENGINES:
        known = ", ".join((*ENGINES, AUTO))
        raise StackError(f"OPENCOMPOSER_INFERENCE_ENGINE must be one of {known}, found {engine!r}")
    if engine == "vllm":
        try:
            urls = ",".join(server_urls(urls))
        except ValueError as error:
            raise StackError(f"OPENCOMPOSER_INFERENCE_ENGINE=vllm needs OPENCOMPOSER_VLLM_URLS: {error}") from error
    return engine, urls


def engine_count(variables: Mapping[str, str], engine: str) -> int:
    """Embedded engines that the user asked for. Raises StackError."""
    asked = variables.get("OPENCOMPOSER_ENGINES") or "1"
    if not asked.isdigit() or not 0 < int(asked) <= MAX_ENGINES:
        raise StackError(f"OPENCOMPOSER_ENGINES must be a number from 1 to {MAX_ENGINES}, found {asked!r}")
    if int(asked) > 1 and engine != "embedded":
        raise StackError(
            f"OPENCOMPOSER_ENGINES={asked} starts embedded engines, and OPENCOMPOSER_INFERENCE_ENGINE is {engine!r}: "
            "unset one of them (several vLLM servers are named in OPENCOMPOSER_VLLM_URLS)"
        )
    return int(asked)


def speculation(variables: Mapping[str, str], engine: str) -> int:
    """Draft tokens per step of embedded engines, for policies with a draft head. Raises StackError."""
    asked = variables.get("OPENCOMPOSER_SPECULATE") or "0"
    if not asked.isdigit() or int(asked) > MAX_SPECULATED:
        raise StackError(f"OPENCOMPOSER_SPECULATE must be a number from 0 to {MAX_SPECULATED}, found {asked!r}")
    if int(asked) and engine != "embedded":
        raise StackError(
            f"OPENCOMPOSER_SPECULATE={asked} is for embedded engines, and OPENCOMPOSER_INFERENCE_ENGINE is {engine!r}: "
            "unset it, and tell the vLLM servers themselves"
        )
    return int(asked)


def mirrors(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Tools that the user wants metrics in; which there are is the product's to say, before anything of it starts.
    Raises StackError."""
    pairs = [pair.strip() for pair in (variables.get("OPENCOMPOSER_MIRRORS") or "").split(",") if pair.strip()]
    found = {kind.strip(): where.strip() for kind, _, where in (pair.partition("=") for pair in pairs)}
    if len(found) < len(pairs) or not all(kind and where for kind, where in found.items()):
        raise StackError(f"OPENCOMPOSER_MIRRORS must be kind=where, each kind once, found {', '.join(pairs)!r}")
    return tuple(found.items())


def replicas_file(layout: Layout, engine: str = "embedded") -> Path:
    """The list of engines of the router, or of vLLM servers: edited by hand, it adds or removes some while runs go on."""
    return layout.run / ("vllm.json" if engine == "vllm" else "engines.json")


def _write_replicas(layout: Layout, addresses: Addresses) -> None:
    """Our engines at the ports of this start, or the vLLM servers that the setting names; those that were added by hand stay
    (`cluster` tells them apart)."""
    path = replicas_file(layout, addresses.engine)
    urls = [f"http://127.0.0.1:{port}" for port in addresses.engine_ports]
    if addresses.engine == "vllm":
        urls = server_urls(addresses.vllm_urls)
    if not urls:
        return
    try:
        others = [spec for spec in read_replicas(path) if spec.cluster != STACK] if path.exists() else []
    except BadRequest as error:
        raise StackError(f"{error}; correct the file, or remove it") from error
    ours = [ReplicaSpec(url=url, cluster=STACK) for url in urls]
    others = [spec for spec in others if spec.url not in urls]
    _private(path, REPLICAS.dump_json([*ours, *others], indent=1).decode() + "\n")


def variables(layout: Layout, addresses: Addresses) -> dict[str, str]:
    """What every process of the product reads (`composer_web/env/settings.py` names them)."""
    return {
        "OPENCOMPOSER_DATA": str(layout.data),
        "OPENCOMPOSER_DATABASE_URL": postgres.database_url(layout.postgres_socket),
        "OPENCOMPOSER_REDIS_URL": addresses.valkey.url,
        "OPENCOMPOSER_INFERENCE_ENGINE": addresses.engine,
        "OPENCOMPOSER_INFERENCE_URL": f"http://127.0.0.1:{addresses.inference_port}",
        "OPENCOMPOSER_VLLM_URLS": addresses.vllm_urls,
        "OPENCOMPOSER_HOST": addresses.host,
        "OPENCOMPOSER_PORT": str(addresses.port),
    }


def write(layout: Layout, addresses: Addresses) -> None:
    _private(layout.run / "env", "".join(f"{name}={value}\n" for name, value in variables(layout, addresses).items()))
    _private(layout.run / "mark", f"{addresses.mark}\n")
    _write_replicas(layout, addresses)


def read(layout: Layout) -> dict[str, str]:
    """The variables of the stack that was last started here; empty when none was."""
    try:
        lines = (layout.run / "env").read_text().splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def url(values: Mapping[str, str]) -> str:
    """The address to type into a browser on this machine."""
    host = values["OPENCOMPOSER_HOST"]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{host}:{values['OPENCOMPOSER_PORT']}/"


def by_hand(layout: Layout) -> dict[str, str]:
    """The environment of a management command that runs against the running stack."""
    return {**os.environ, **read(layout), "OMP_NUM_THREADS": "1"}


def read_mark(layout: Layout) -> str | None:
    try:
        return (layout.run / "mark").read_text().strip() or None
    except FileNotFoundError:
        return None


def process_environment(layout: Layout, addresses: Addresses) -> dict[str, str]:
    """The environment of the supervisor, which all programs inherit."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENCOMPOSER_", "MAKE", "MFLAGS"))
    }
    tuning = {name: value for name, value in os.environ.items() if name.startswith("OPENCOMPOSER_")}
    return {
        **kept,
        **tuning,  # what the user set, except what this start decided
        **variables(layout, addresses),
        MARK: addresses.mark,
        "DJANGO_SETTINGS_MODULE": "composer_web.settings",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        # One thread each: several processes share the cores, and more threads than cores only spin. The programs
        # that compute (trainer, inference) get their own number, see programs.py.
        "OMP_NUM_THREADS": "1",
    }


def _private(path: Path, text: str) -> None:
    """Replace atomically; only the user who started the stack may read it (it holds passwords)."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.rename(path)
