"""Where the services are: read from the environment (prefix `OPENCOMPOSER_`), else from `<data>/run/env`.

The supervisor writes `<data>/run/env` when it starts the embedded Postgres and Valkey, so that a command
typed in another shell finds the same services without any variable set.
"""

from __future__ import annotations

import os
import re
import secrets
import warnings
from collections.abc import Iterable, MutableMapping
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from composer_web.env.addresses import checked, database_settings, mirror_targets
from trainer.config.renamed import RENAMED
from trainer.inference.choosing import Chosen, choose_engine

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_DATA = REPOSITORY / ".data"
PREFIX = "OPENCOMPOSER_"


class WrongSetting(SystemExit):
    """A variable that the product cannot work with. The message names each, what was found and what is expected.

    Settings are read while modules are imported; an ordinary exception there would end every command, server and
    worker in a trace of imports, this ends them in one line.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("error: " + "; ".join(problems))


class Env(BaseSettings):
    """Settings of one process. Precedence: variables, then the supervisor's file, then these defaults."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    data: Path = Field(default=DEFAULT_DATA, description="Root of everything the product stores besides Postgres")
    weight_store: str = Field(
        default="",
        description="Where runs publish their weights, s3://bucket/prefix; empty: <data>/weights",
    )
    artifact_store: str = Field(
        default="",
        description="Where trajectories and logs are kept, s3://bucket/prefix; empty: <data>/artifacts",
    )
    database_url: str = Field(
        default="postgresql://opencomposer@127.0.0.1:5432/opencomposer",
        repr=False,
        description="postgresql://user:password@host:port/name; a socket folder may be given as ?host=",
    )
    database_password: str = Field(
        default="", repr=False, description="Password for database_url, as it is: nothing in it is percent-encoded"
    )
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", repr=False, description="Redis or Valkey: broker and live hints"
    )
    redis_password: str = Field(
        default="", repr=False, description="Password for redis_url, as it is: nothing in it is percent-encoded"
    )
    inference_engine: Literal["embedded", "vllm", "auto"] = Field(
        default="embedded",
        description="What computes: our own engine, vLLM servers, or auto: vLLM where servers of it are named (VLLM_URLS) and a "
        "GPU may compute, else our own, which is faster on CPUs",
    )
    engines: int = Field(
        default=1, ge=1, description="Embedded engines that `make up` starts; with more than one, a router before them"
    )
    speculate: int = Field(
        default=0, ge=0, le=8, description="Draft tokens per step of embedded engines, for policies with a draft head"
    )
    engine_device: str = Field(
        default="cpu",
        pattern=r"^(cpu|cuda(:\d+(,\d+)*)?)$",
        description="Where embedded engines compute: cpu (compiled loops), cuda (engines spread over all GPUs), cuda:N, cuda:N,N",
    )
    engine_context: int = Field(
        default=131_072,
        ge=16,
        description="Tokens of the longest sequence that embedded engines compute, as far as a policy's positions reach; a run "
        "or an evaluation sets its own",
    )
    kv_cache_mib: int = Field(
        default=1024,
        ge=1,
        description="Memory for keys and values of each deployment in an embedded engine; a run sets its own",
    )
    inference_url: str = Field(
        default="http://127.0.0.1:8100",
        description="The inference server: the embedded one, a router, or the one in front of vLLM",
    )
    vllm_urls: str = Field(
        default="",
        description="vLLM servers, separated by commas; for the server in front of them, which `make up` starts",
    )
    secret_key: str = Field(
        default="", repr=False, description="Signing key; empty: one is made and kept in <data>/run/secret_key"
    )
    secret_key_fallbacks: str = Field(
        default="",
        repr=False,
        description="Earlier signing keys, separated by commas: they still verify and decrypt, and sign nothing new",
    )
    host: str = Field(default="127.0.0.1", description="Address that the web server listens on")
    port: int = Field(default=8000, ge=1, le=65535)
    public_hosts: str = Field(default="", description="More host names that may be asked for, separated by commas")
    https: bool = Field(default=False, description="Served behind TLS: secure cookies and HSTS")
    trusted_proxies: str = Field(
        default="",
        description="Addresses or networks (CIDR) of proxies whose X-Forwarded-For tells the client's address, by commas",
    )
    debug: bool = False
    database_pool: int = Field(default=8, ge=1, description="Most database connections of one process")
    rollout_concurrency: int = Field(default=4, ge=1, description="Groups that one rollout worker runs at a time")
    io_threads: int = Field(
        default=3,
        ge=2,
        description="Exports, datasets, measurements and sweeps of one worker at a time; one stays free",
    )
    disk_reserve_mb: int = Field(
        default=256, ge=0, description="MiB that stay free: with less, runs pause and rollouts wait"
    )
    snapshot_days: int = Field(
        default=14, ge=0, description="Days that snapshots of an ended run's rollouts are kept; 0 keeps them for ever"
    )
    trajectory_days: int = Field(
        default=0,
        ge=0,
        description="Days that trajectories of an ended run or evaluation are kept, but for those that people annotated or "
        "something needs; 0 keeps them for ever",
    )
    system_metrics_days: int = Field(
        default=14, ge=1, description="Days that CPU, memory, network and GPU use of workers is kept"
    )
    run_log_days: int = Field(default=30, ge=1, description="Days that log lines of a run's processes are kept")
    trainer_lease_seconds: float = Field(
        default=10.0, gt=1, description="A silent trainer loses its run after this long"
    )
    trainer_endpoint: str = Field(
        default="",
        description="host:port of this trainer for runs on several machines: a free port that the others reach",
    )
    group_lease_seconds: float = Field(
        default=20.0, gt=1, description="A silent rollout worker loses its group after this long"
    )

    machine_hour_dollars: float | None = Field(
        default=None, ge=0, description="What an hour of the machines of one run costs; empty: no money is estimated"
    )

    git_hosts: str = Field(
        default="", description="Hosts at private addresses that repositories may come from, separated by commas"
    )
    git_roots: str = Field(
        default="", description="Folders of this machine below which git repositories may be read, separated by commas"
    )

    installer_url: str = Field(
        default="",
        description="Base of an OpenAI-compatible endpoint that installs what recipes cannot; empty: none does",
    )
    installer_model: str = Field(default="", description="Model to ask there")
    installer_key: str = Field(default="", repr=False, description="Its key, sent as a bearer token and stored nowhere")

    endpoint_hosts: str = Field(
        default="",
        description="Hosts (or host:port) at private addresses where endpoints may be, separated by commas",
    )

    @property
    def engine(self) -> Chosen:
        """What `inference_engine` stands for."""
        return choose_engine(self.inference_engine, self.vllm_urls)

    @field_validator("database_url")
    @classmethod
    def _database(cls, value: str) -> str:
        database_settings(value)
        return value

    @field_validator("weight_store", "artifact_store")
    @classmethod
    def _bucket(cls, value: str, info: ValidationInfo) -> str:
        if value and not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w./-]*)?", value):
            folder = "weights" if info.field_name == "weight_store" else "artifacts"
            raise ValueError(f"must look like s3://bucket/prefix, or be empty for <data>/{folder}")
        return value.rstrip("/")

    @field_validator("redis_url", "inference_url")
    @classmethod
    def _address(cls, value: str, info: ValidationInfo) -> str:
        schemes = ("redis", "rediss") if info.field_name == "redis_url" else ("http", "https")
        expected = f"must look like {schemes[0]}://host:port"
        return checked(value, schemes, expected, user=info.field_name == "redis_url")

    @field_validator("installer_url", "judge_url", check_fields=False)
    @classmethod
    def _endpoint(cls, value: str) -> str:
        expected = "must look like https://host:port/v1, or be empty; its key has a setting of its own"
        return checked(value, ("http", "https"), expected, user=False) if value else value

    @field_validator("email_url", check_fields=False)
    @classmethod
    def _mail(cls, value: str) -> str:
        expected = "must look like smtp://user:password@host:587 or smtps://…, or be empty"
        return checked(value, ("smtp", "smtps"), expected) if value else value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        for one in filter(None, map(str.strip, value.split(","))):
            try:
                ip_network(one)
            except ValueError as error:
                raise ValueError(f"must be addresses or networks (10.0.0.0/8), separated by commas; {error}") from None
        return value

    @model_validator(mode="after")
    def _passwords(self) -> Env:
        """Put the separate passwords, quoted, into the addresses that everything else reads."""
        for name in ("database", "redis"):
            password, url = getattr(self, f"{name}_password"), getattr(self, f"{name}_url")
            if not password:
                continue
            parts = urlsplit(url)
            if parts.password is not None:
                raise ValueError(f"{PREFIX}{name.upper()}_PASSWORD: the address has a password already; give it once")
            user, _, host = parts.netloc.rpartition("@")
            netloc = f"{user}:{quote(password, safe='')}@{host}"
            # Not through validation again: this validator would run without end.
            object.__setattr__(self, f"{name}_url", parts._replace(netloc=netloc).geturl())
        return self

    webhook_hosts: str = Field(
        default="",
        description="Hosts (or host:port) at private addresses that webhooks may go to, separated by commas",
    )
    email_url: str = Field(
        default="", repr=False, description="Mail server, smtp://user:password@host:587 or smtps://…; empty: no e-mail"
    )
    email_from: str = Field(default="opencomposer@localhost", description="Sender of e-mail")
    public_url: str = Field(default="", description="Where people reach the product, for links in messages")

    oidc_issuer: str = Field(
        default="",
        description="Issuer of an OpenID Connect provider that people may log in with; empty: passwords only",
    )
    oidc_name: str = Field(default="Single sign-on", description="What the log-in button says")
    oidc_client_id: str = Field(default="", description="Our id there")
    oidc_client_secret: str = Field(default="", repr=False, description="Our secret there")
    oidc_domains: str = Field(
        default="", description="E-mail domains whose verified people get an account as viewers, separated by commas"
    )
    oidc_roles: str = Field(
        default="", description="Who gets an account by a group, as group=role, separated by commas; set at each log-in"
    )
    oidc_claim: str = Field(default="groups", description="Where the provider says the groups")
    traces_url: str = Field(
        default="",
        description="Base of an OTLP collector (http://host:4318) that gets traces of rollouts; empty: none are made",
    )

    @field_validator("traces_url")
    @classmethod
    def _traces(cls, value: str) -> str:
        if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("must look like http://host:4318, or be empty")
        if value and find_spec("opentelemetry.exporter") is None:
            raise ValueError("needs the extra: pip install 'opencomposer[otel]'")
        return value

    mirrors: str = Field(
        default="",
        description="Other tools that get the metrics of all runs: kind=where with tensorboard, mlflow, wandb, by commas",
    )

    @field_validator("mirrors")
    @classmethod
    def _mirrors(cls, value: str) -> str:
        for kind, _ in mirror_targets(value):
            if find_spec(kind) is None:
                raise ValueError(f"needs the extra: pip install 'opencomposer[{kind}]'")
        return value

    require_mfa: Literal["nobody", "admins", "everybody"] = Field(
        default="nobody", description="Who may use the product only with a second factor (log-in by OIDC counts as one)"
    )

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer(cls, value: str) -> str:
        parts = urlsplit(value)
        inner = parts.hostname in ("127.0.0.1", "localhost", "::1")
        if value and not (parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and inner))):
            raise ValueError("must look like https://host (http only on the loopback), or be empty")
        return value.rstrip("/")

    @field_validator("oidc_roles")
    @classmethod
    def _roles(cls, value: str) -> str:
        for pair in filter(None, map(str.strip, value.split(","))):
            if pair.rpartition("=")[2] not in ("viewer", "reviewer", "operator", "admin") or "=" not in pair:
                raise ValueError(f"must be group=role with viewer, reviewer, operator or admin; not {pair!r}")
        return value

    judge_url: str = Field(
        default="", description="Base of an OpenAI-compatible endpoint that reads trajectories; empty: none does"
    )
    judge_model: str = Field(default="", description="Model to ask there")
    judge_key: str = Field(default="", repr=False, description="Its key, sent as a bearer token and stored nowhere")

    def secret(self) -> str:
        """The signing key, made once (mode 0600) when none is configured."""
        if self.secret_key:
            return self.secret_key
        path = self.data / "run" / "secret_key"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_text().strip()
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
        return path.read_text().strip()


def misspelt(variables: Iterable[str]) -> list[str]:
    """Names that are almost those of settings: whoever set them meant the settings, which would go on unset."""
    known = [name.upper() for name in Env.model_fields]
    found = []
    for name in variables:
        word = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and word not in known:
            found += [
                f"{name} is no setting; did you mean {PREFIX}{near}?"
                for near in get_close_matches(word, known, n=1, cutoff=0.85)
            ]
    return found


def accept_old_names(variables: MutableMapping[str, str]) -> None:
    """Set the new name of each renamed variable, with a deprecation warning. Raises WrongSetting when both are set."""
    for old, new in ((f"{PREFIX}{a.upper()}", f"{PREFIX}{b.upper()}") for a, b in RENAMED["Env"].items()):
        if not variables.get(old):
            continue
        if variables.get(new, variables[old]) != variables[old]:
            raise WrongSetting([f"{old} is the old name of {new}, and both are set; unset {old}"])
        warnings.warn(f"{old} is deprecated; set {new}", DeprecationWarning, stacklevel=2)
        variables[new] = variables[old]


@lru_cache(maxsize=1)
def env() -> Env:
    """The settings of this process, read once. Raises WrongSetting."""
    if wrong := misspelt(os.environ):
        raise WrongSetting(wrong)
    accept_old_names(os.environ)
    data = Path(os.environ.get("OPENCOMPOSER_DATA") or DEFAULT_DATA)
    try:
        return Env(_env_file=data / "run" / "env")  # type: ignore[call-arg]
    except ValidationError as error:
        wrong = []
        for item in error.errors():
            ours = item["type"] == "value_error"
            said = item["msg"].removeprefix("Value error, ") + ("" if ours else f" (found {item['input']!r})")
            wrong.append(f"{PREFIX}{str(item['loc'][0]).upper()}: {said}" if item["loc"] else said)
        raise WrongSetting(wrong) from None
