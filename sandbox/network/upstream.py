"""The registries behind the proxy, from the configuration of the host's own pip, npm and go."""

from __future__ import annotations

import ast
import asyncio
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator

TOOL_SECONDS = 60.0
SETTINGS = {
    "python": "OPENCOMPOSER_PYTHON_INDEX",
    "npm": "OPENCOMPOSER_NPM_REGISTRY",
    "go": "OPENCOMPOSER_GO_PROXY",
    "cargo": "OPENCOMPOSER_CARGO_INDEX",
    "authorization": "OPENCOMPOSER_REGISTRY_AUTHORIZATION",
}
"""Environment variables that name the registries instead of the host's tools. `authorization` is the header's value."""


class UpstreamError(ValueError):
    """No registry is known, or its address cannot be used; the message says what to set."""


class Upstream(BaseModel):
    """One registry. Credentials are given to it alone, never to a host that it redirects to or names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """Base address: what pip calls the index URL, npm the registry, go the proxy. No credentials in it."""
    authorization: SecretStr | None = None
    file_hosts: frozenset[str] | None = None
    """Further hosts (`name` or `name:port`) that files may come from. None: those that the registry's own pages name,
    over HTTPS and at public addresses."""
    private: bool = False
    """Whether the registry, and the names of hosts that files may come from, may be at private or loopback addresses."""

    @field_validator("url")
    @classmethod
    def _usable(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise UpstreamError(f"registry {_shown(url)!r} is not an address") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UpstreamError(f"registry {_shown(url)!r} is not an http(s) address")
        if parts.username is not None or parts.password is not None:
            raise UpstreamError(f"registry {_shown(url)!r} carries credentials; give them as `authorization`")
        return url.rstrip("/") + "/"

    @field_validator("file_hosts")
    @classmethod
    def _plain(cls, hosts: frozenset[str] | None) -> frozenset[str] | None:
        for host in hosts or ():
            if not re.fullmatch(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", host):
                raise UpstreamError(f"file_hosts: {host!r} is not a host; write `name` or `name:port`, in lower case")
        return hosts

    @classmethod
    def of(cls, url: str, authorization: SecretStr | None = None) -> Upstream:
        """From an address as tools are configured with: credentials in it become `authorization`, and a registry whose
        address is private now may stay at one."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = authorization or SecretStr(_basic(pair))
        port = f":{parts.port}" if parts.port else ""
        shown_host = f"[{host}]" if ":" in host else host
        clean = urlunsplit((parts.scheme, shown_host + port, parts.path, parts.query, parts.fragment))
        return cls(url=clean, authorization=authorization, private=_is_private(host))


class Upstreams(BaseModel):
    """All registries. Python may have several indexes; a package's files are those of all of them together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: tuple[Upstream, ...] = ()
    npm: Upstream | None = None
    go: Upstream | None = None
    cargo: Upstream | None = None
    """A sparse index."""
    ca_file: Path | None = None
    """Certificates to trust instead of the system's."""
    http_proxy: SecretStr | None = None
    """A proxy that the host itself must go through. It resolves names, so addresses cannot be checked here."""
    kept_files: Path | None = None
    """Where verified Python package files are kept from one sandbox to the next; None: nowhere."""
    skipped: tuple[str, ...] = ()
    """What the tools are configured with and this proxy does not serve, in words."""


def discover(environment: Mapping[str, str] = os.environ) -> Upstreams:
    """What the settings name, else what the host's pip, npm and go use. Runs them (about a second each); no network
    except to look up the registries' addresses. Raises UpstreamError."""
    secret = environment.get(SETTINGS["authorization"])
    authorization = SecretStr(secret) if secret else None
    pip = pip_settings()
    skipped: list[str] = []
    named = environment.get(SETTINGS["python"])
    indexes = named.split() if named else pip_indexes(pip)
    python = []
    for url in indexes:
        if urlsplit(url).scheme in ("http", "https"):
            python.append(Upstream.of(url, authorization))
        else:
            skipped.append(f"Python index {_shown(url)}: only http(s) is served")
    npm = environment.get(SETTINGS["npm"]) or command_output("npm", "config", "get", "registry")
    go = environment.get(SETTINGS["go"]) or _go_proxy(command_output("go", "env", "GOPROXY"))
    cargo = environment.get(SETTINGS["cargo"]) or cargo_index(environment)
    if cargo and not cargo.startswith(("sparse+", "http://", "https://")):
        skipped.append(f"Cargo index {_shown(cargo)}: only sparse indexes are served")
        cargo = None
    certificates = pip.get("cert") or environment.get("SSL_CERT_FILE")
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get("https") or proxies.get("http")
    return Upstreams(
        python=tuple(python),
        npm=Upstream.of(npm, authorization) if npm else None,
        go=Upstream.of(go, authorization) if go else None,
        cargo=Upstream.of(cargo.removeprefix("sparse+"), authorization) if cargo else None,
        ca_file=Path(certificates) if certificates else None,
        http_proxy=SecretStr(proxy) if proxy else None,
        skipped=tuple(skipped),
    )


async def discover_aside() -> Upstreams:
    """`discover` without blocking the event loop."""
    return await asyncio.to_thread(discover)


def pip_settings() -> dict[str, str]:
    """What `pip install` of this interpreter would use, by option; the strongest source wins."""
    listing = command_output(sys.executable, "-m", "pip", "config", "list")
    found: dict[str, str] = {}
    for source in ("global", "install", ":env:"):
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{source}."):
                found[key.removeprefix(f"{source}.")] = str(ast.literal_eval(value))
    return found


def pip_indexes(settings: Mapping[str, str]) -> list[str]:
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return []
    index = settings.get("index-url") or pip_default()
    return ([index] if index else []) + settings.get("extra-index-url", "").split()


def pip_default() -> str | None:
    """pip's own index, from its help."""
    text = " ".join(command_output(sys.executable, "-m", "pip", "install", "--help").split())
    found = re.search(r"--index-url <url> [^(]*\(default (https?://[^\s)]+)\)", text)
    return found.group(1) if found else None


def _go_proxy(setting: str) -> str | None:
    """The first proxy of go's list (`direct` and `off` are none)."""
    proxies = [part for part in re.split("[,|]", setting) if part.startswith(("http://", "https://"))]
    return proxies[0] if proxies else None


def cargo_index(environment: Mapping[str, str]) -> str | None:
    """What the host's own Cargo settings put in place of its default registry; cargo itself does not tell."""
    home = Path(environment.get("CARGO_HOME") or Path.home() / ".cargo")
    path = next((path for path in (home / "config.toml", home / "config") if path.is_file()), None)
    try:
        sources = tomllib.loads(path.read_text()).get("source", {}) if path else {}
        name, seen = "crates-io", set()
        while name not in seen and "replace-with" in sources.get(name, {}):
            seen.add(name)
            name = sources[name]["replace-with"]
        found = sources.get(name, {}).get("registry")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError, TypeError) as error:
        raise UpstreamError(f"{path} cannot be read ({error}); repair it, or set {SETTINGS['cargo']}") from None
    return found if isinstance(found, str) else None


def command_output(*command: str) -> str:
    """What a tool of the host answers; empty when it is not there. Raises UpstreamError when it fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS, check=False
    )
    if done.returncode:
        if "No module named pip" in done.stderr:
            return ""
        what, said = " ".join(command), done.stderr.strip()[-300:]
        raise UpstreamError(f"`{what}` failed: {said}; repair it, or set {', '.join(SETTINGS.values())}")
    return done.stdout.strip()


def _is_private(host: str) -> bool:
    """Whether the host has no public address now (a name that cannot be looked up counts as public)."""
    try:
        found = {ipaddress.ip_address(host)}
    except ValueError:
        try:
            found = {ipaddress.ip_address(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
        except OSError:
            return False
    return not any(address.is_global for address in found)


def _basic(pair: str) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(pair.encode()).decode()


def _shown(url: str) -> str:
    """Without what may be a secret."""
    return re.sub(r"//[^/@]*@", "//***@", url)
