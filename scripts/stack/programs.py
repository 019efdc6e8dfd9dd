"""The processes of the stack, and the supervisor configuration that keeps them alive."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import valkey
from .environment import Addresses, replicas_file
from .layout import REPOSITORY, Layout

SERVICES = "services"
PRODUCT = "product"

# A program that keeps failing is started again after 1, 2, 3, … seconds, this many times, before it is given up:
# enough for a full disk to be cleared or a service to come back.
RETRIES = 60


@dataclass(frozen=True, slots=True)
class Program:
    """One supervised process. `stop` is the signal that ends it cleanly within `patience` seconds."""

    name: str
    command: Sequence[str]
    group: str = PRODUCT
    stop: str = "TERM"
    patience: int = 10
    variables: dict[str, str] = field(default_factory=dict)


def services(layout: Layout) -> list[Program]:
    """What everything else waits for."""
    return [
        # INT is Postgres's fast shutdown: it ends sessions and writes a checkpoint.
        Program("postgres", [sys.executable, "-m", "scripts.stack.postgres"], group=SERVICES, stop="INT", patience=30),
        Program("valkey", valkey.server_command(layout.run / "valkey.conf"), group=SERVICES),
    ]


def product(layout: Layout, addresses: Addresses) -> list[Program]:
    """The product itself: one queue per kind of work, see docs/guides/operations.md."""
    cores = os.cpu_count() or 1
    compute = {"OMP_NUM_THREADS": os.environ.get("OPENCOMPOSER_THREADS") or str(max(1, cores // 2))}
    python = sys.executable
    return [
        Program(
            "web",
            [
                *(python, "-m", "uvicorn", "composer_web.asgi:application", "--host", addresses.host),
                *(
                    "--port",
                    str(addresses.port),
                    "--http",
                    "trainer.inference.transport:JoinedProtocol",
                    "--no-access-log",
                    "--no-proxy-headers",  # OPENCOMPOSER_TRUSTED_PROXIES instead (composer_web/core/network/proxies.py)
                    "--timeout-graceful-shutdown",
                    "5",
                    "--ws-max-size",
                    "16384",
                ),
            ],
        ),
        # Two threads, so that a slow answer of the inference server to a pump keeps no message in the outbox.
        _worker("worker-control", "control", "--pool", "threads", "--concurrency", "2"),
        _worker(
            "worker-io",
            "io,maintenance",
            "--pool",
            "threads",
            "--concurrency",
            os.environ.get("OPENCOMPOSER_IO_THREADS") or "3",
            niceness=5,
        ),
        _worker(
            "worker-rollout",
            "rollout,eval",
            "--pool",
            "threads",
            "--concurrency",
            os.environ.get("OPENCOMPOSER_ROLLOUT_CONCURRENCY") or os.environ.get("OPENCOMPOSER_EPISODES") or "4",
        ),
        # Builds can wait, episodes of a live run cannot.
        _worker("worker-build", "build", "--pool", "threads", "--concurrency", "1", niceness=10),
        # The trainer process that it starts computes. It gets the time for its step and a checkpoint when the stack stops.
        _worker("worker-train", "train", "--pool", "threads", "--concurrency", "1", patience=30, variables=compute),
        Program("beat", [python, "-m", "celery", "-A", "composer_web", "beat", "--loglevel", "warning", "--pidfile="]),
        *_inference(layout, addresses, compute),
        *(Program(f"mirror-{kind}", [python, "manage.py", "mirror", kind, where]) for kind, where in addresses.mirrors),
    ]


def _inference(layout: Layout, addresses: Addresses, compute: dict[str, str]) -> list[Program]:
    """The server of the inference contract: our own engine, a router and several of those, or the one in front of vLLM."""
    address = ("--host", "127.0.0.1", "--port", str(addresses.inference_port))
    if addresses.engine == "vllm":
        replicas = ("--replicas", str(replicas_file(layout, addresses.engine)))
        return [Program("inference", [sys.executable, "-m", "trainer.inference.vllm.server", *replicas, *address])]
    embedded = [
        sys.executable,
        "-m",
        "trainer.inference.embedded.serving.server",
        "--speculate",
        str(addresses.speculate),
    ]
    if not addresses.engine_ports:
        return [Program("inference", [*embedded, *address], variables=compute)]
    share = {"OMP_NUM_THREADS": str(max(1, int(compute["OMP_NUM_THREADS"]) // len(addresses.engine_ports)))}
    engines = [
        Program(
            f"engine-{number}",
            [*embedded, "--port", str(port), "--data", str(layout.data / "engines" / str(number))],
            variables=share,
        )
        for number, port in enumerate(addresses.engine_ports, start=1)
    ]
    replicas = ("--replicas", str(replicas_file(layout)))
    return [
        *engines,
        Program("inference", [sys.executable, "-m", "trainer.inference.router.server", *replicas, *address]),
    ]


def _worker(
    name: str,
    queues: str,
    *options: str,
    niceness: int = 0,
    patience: int = 25,
    variables: dict[str, str] | None = None,
) -> Program:
    command = [
        *(("nice", "-n", str(niceness)) if niceness else ()),
        sys.executable,
        "-m",
        "celery",
        "-A",
        "composer_web",
        "worker",
        "--queues",
        queues,
        "--hostname",
        f"{name}@%h",
        "--loglevel",
        "info",
        "--without-gossip",
        "--without-mingle",
        *options,
    ]
    # TERM lets a task in progress end; a rollout worker gives its groups back first (composer_web/celery.py). One that
    # takes longer than this is killed: its lease expires and the reconciler sends the work again.
    return Program(name, command, patience=patience, variables=variables or {})


def configuration(layout: Layout, programs: Sequence[Program]) -> str:
    """supervisord's configuration. Its control socket is a private Unix socket; nothing listens on the network."""
    sections = [
        f"[unix_http_server]\nfile={_text(control_socket(layout))}\nchmod=0600",
        "[supervisord]\n"
        f"logfile={_text(layout.logs / 'supervisor.log')}\nlogfile_maxbytes=5MB\nlogfile_backups=1\n"
        f"pidfile={_text(layout.run / 'supervisor.pid')}\nchildlogdir={_text(layout.logs)}\n"
        f"directory={_text(REPOSITORY)}\nnodaemon=true\nsilent=true\nminfds=256\nminprocs=64\n"
        + ("user=root" if os.geteuid() == 0 else ""),
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
    ]
    groups: dict[str, list[str]] = {}
    for program in programs:
        groups.setdefault(program.group, []).append(program.name)
        sections.append(_section(layout, program))
    # Lower priority starts first and stops last: the product goes before its services.
    sections += [
        f"[group:{group}]\nprograms={','.join(names)}\npriority={100 if group == SERVICES else 200}"
        for group, names in groups.items()
    ]
    return "\n\n".join(sections) + "\n"


def control_socket(layout: Layout) -> Path:
    return layout.sockets / "supervisor.sock"


def _section(layout: Layout, program: Program) -> str:
    lines = [
        f"[program:{program.name}]",
        f"command={' '.join(_quoted(word) for word in program.command)}",
        f"stdout_logfile={_text(layout.logs / f'{program.name}.log')}",
        "redirect_stderr=true",
        "stdout_logfile_maxbytes=10MB",
        "stdout_logfile_backups=1",
        "autostart=false",
        "autorestart=true",
        "startsecs=2",
        f"startretries={RETRIES}",
        f"stopsignal={program.stop}",
        f"stopwaitsecs={program.patience}",
        "killasgroup=true",
    ]
    if program.variables:
        pairs = ",".join(f'{name}="{_text(value)}"' for name, value in program.variables.items())
        lines.append(f"environment={pairs}")
    return "\n".join(lines)


def _text(value: object) -> str:
    """supervisord expands %(name)s everywhere, so a percent sign is doubled."""
    return str(value).replace("%", "%%")


def _quoted(word: str) -> str:
    """One word of a command line; supervisord splits it as a shell would."""
    import shlex

    return _text(shlex.quote(word))
