"""A checkout's pytest configuration. An environment keeps every part of it that affects test collection."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable

from sandbox.backends.base import WORKDIR
from sandbox.repositories.checkout import Checkout, ini, strings

NAMED = ("test_*.py", "*_test.py")
"""Files that pytest collects unless it is told otherwise."""
MAX_NAMES = 30
KEPT_ALONE = re.compile(r"--(?:import-mode|ignore|ignore-glob|deselect)=|-[mk].")
KEPT_PAIRS = ("--import-mode", "--ignore", "--ignore-glob", "--deselect", "-m", "-k")
"""Options of `addopts` that say which tests there are; the others are about reports, speed and coverage."""
OWN = re.compile(
    r"PATH|HOME|LANG|LC_.*|USER|TMP.*|PYTEST_.*|PIP_.*|UV_.*|TOX_.*|COV.*|VIRTUALENV.*|PYTHONHASHSEED|PYTHONWARNINGS|"
    r"PYTHONDONTWRITEBYTECODE|LD_.*|CC|CXX|CFLAGS|LDFLAGS|.*PROXY|.*_TOKEN|.*PASSWORD|.*SECRET.*"
)
"""Variables that are not taken from a checkout's settings."""
DJANGO = re.compile(r"DJANGO_SETTINGS_MODULE[\"']?\s*[,=:\]]+\s*[\"']?([A-Za-z_][\w.]*)")


def file(checkout: Checkout) -> str:
    """The file that configures pytest, in pytest's own order; empty where there is none."""
    for name in ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"):
        if name in checkout.files:
            return name
    if checkout.table("tool", "pytest"):
        return "pyproject.toml"
    if "tox.ini" in checkout.files and ini(checkout.text("tox.ini")).has_section("pytest"):
        return "tox.ini"
    return "setup.cfg" if checkout.setup_cfg.has_section("tool:pytest") else ""


def options(checkout: Checkout) -> dict[str, str]:
    """pytest's ini options as texts, lists joined by blanks."""
    name = file(checkout)
    if name == "pyproject.toml":
        table = checkout.table("tool", "pytest", "ini_options") or checkout.table("tool", "pytest")
    elif name.endswith(".toml"):
        return {}
    else:
        parser = ini(checkout.text(name)) if name else ini("")
        section = "tool:pytest" if name == "setup.cfg" else "pytest"
        table = dict(parser.items(section)) if parser.has_section(section) else {}
    joined = {
        k: shlex.join(map(str, v)) if k == "addopts" else " ".join(map(str, v))
        for k, v in table.items()
        if isinstance(v, list)
    }
    return {k: v if isinstance(v, str) else joined.get(k, str(v)) for k, v in table.items()}


def kept_options(checkout: Checkout) -> list[str]:
    """What of `addopts` goes on to hold."""
    try:
        words = shlex.split(options(checkout).get("addopts", ""))
    except ValueError:
        return []
    found: list[str] = []
    for word, after in zip(words, [*words, ""][1:], strict=True):
        if KEPT_ALONE.match(word):
            found.append(word)
        elif word in KEPT_PAIRS and after:
            found += [word, after]
        elif word.startswith("--asyncio-mode="):
            found += ["-o", f"asyncio_mode={word.partition('=')[2]}"]
    return found


def may_be_left_out(checkout: Checkout, path: str) -> bool:
    """Whether the checkout's own options may leave out all tests of a file: by its path, or a mark of it or its folders."""
    kept = kept_options(checkout)
    chosen = [after for word, after in zip(kept, [*kept, ""][1:], strict=True) if word in ("-m", "-k")]
    chosen += [word[2:] for word in kept if re.match(r"-[mk].", word)]
    words = set(re.findall(r"\w+", " ".join(chosen))) - {"not", "and", "or", "True", "False"}
    parts = path.split("/")[:-1]
    folders = ["/".join([*parts[:n], "conftest.py"]) for n in range(1, len(parts) + 1)]
    texts = [path, checkout.text(path), *(checkout.text(conftest) for conftest in folders)]
    ignored = [after or word for word, after in zip(kept, [*kept, ""][1:], strict=True) if word in KEPT_PAIRS[1:4]]
    ignored += [word.partition("=")[2] for word in kept if word.startswith(("--ignore", "--deselect")) and "=" in word]
    if any(path.startswith(place.removeprefix("./").rstrip("/*")) for place in ignored if place):
        return True
    return any(re.search(rf"\b{word}\b", text) for word in words for text in texts)


def patterns(checkout: Checkout, tests: Iterable[str]) -> list[str]:
    """Names of files that are to count as tests, where none of `tests` has one that pytest would see; else nothing."""
    usual = options(checkout).get("python_files", "").split() or NAMED
    names = sorted({path.rpartition("/")[2] for path in tests})
    if not names or any(fnmatch.fnmatch(name, pattern) for name in names for pattern in usual):
        return []
    return names if len(names) <= MAX_NAMES else ["*.py"]


def is_collected(checkout: Checkout, path: str) -> bool:
    """Whether pytest sees a test file when it is given the folder."""
    usual = options(checkout).get("python_files", "").split() or NAMED
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatch(name, pattern) for pattern in usual)


def variables(checkout: Checkout) -> dict[str, str]:
    """Variables that the checkout's tests run with, by tox and by Django's ways; no secrets, none of the machine's."""
    found: dict[str, str] = {}
    tox = checkout.tox
    lines = [line for key in ("setenv", "set_env") for line in strings(tox.get("testenv", key, fallback=""))]
    table = checkout.table("tool", "tox", "env_run_base").get("set_env")
    lines += [f"{k}={v}" for k, v in table.items() if isinstance(v, str)] if isinstance(table, dict) else []
    for line in lines:
        name, _, value = (part.strip() for part in line.partition("="))
        value = re.sub(r"\{(?:toxinidir|tox_root)\}", WORKDIR, value)
        if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and value and "{" not in value and not OWN.fullmatch(name):
            found[name] = value
    if module := django_settings(checkout):
        found.setdefault("DJANGO_SETTINGS_MODULE", module)
    return found


def django_settings(checkout: Checkout) -> str:
    """The settings module that a project's own files name, if it is in the checkout; empty otherwise."""
    sources = [p for p in checkout.files if p.count("/") < 3 and re.search(r"(?:\.py|\.cfg|\.toml|\.ini)$", p)]
    likely = sorted(sources, key=lambda p: ("test" not in p and p != "manage.py", p.count("/"), p))
    for path in likely:
        for module in DJANGO.findall(checkout.text(path)):
            place = module.replace(".", "/")
            if any(
                f"{prefix}{place}{end}" in checkout.files
                for prefix in ("", "src/", "tests/")
                for end in (".py", "/__init__.py")
            ):
                return str(module)
    return ""
