"""Suites from real packages, end to end: a source distribution, its environment, planted bugs, controls on a build worker.

The package is made here and lies in the download cache with its hash in a lock of its own, so no network is needed.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError
from django.test import Client

from composer_web.accounts.models import User
from composer_web.env import env
from composer_web.repositories.models import Environment
from composer_web.tasks.models import Suite, TaskVersion
from sandbox.repositories import pins
from tests.sandbox.shelf import FILES, put_toolchain, write_sdist
from tests.web.api.test_commands import run as command
from tests.web.helpers import eventually
from tests.web.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.django_db(transaction=True)]
Bearer = Callable[..., dict[str, str]]

WORKER = (
    "import sys; from pathlib import Path; from sandbox.repositories import pins; "
    "pins.read_lock.__defaults__ = (Path(sys.argv.pop(1)),); "
    "from celery.__main__ import main; main()"
)
"""A Celery worker that reads the lock of the test."""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pins of `shelf`, which has tests, `bare`, which has none, and `gone`, which is in no cache; pip has no index."""
    environments = env().data / "environments"
    cache = put_toolchain(environments / "downloads")
    lines = [f"gone==1.0 --hash=sha256:{'0' * 64}"]
    for name, files in (("shelf", FILES), ("bare", {"bare/__init__.py": "x = 1\n"})):
        archive = write_sdist(cache / f"{name}-1.2.tar.gz", files, top=f"{name}-1.2")
        lines.append(f"{name}==1.2 --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}")
    path = tmp_path / "packages.lock"
    path.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(pins.read_lock, "__defaults__", (path,))
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null"), ("PIP_FIND_LINKS", "")):
        monkeypatch.setenv(name, value)
    yield path
    shutil.rmtree(environments)


@pytest.fixture
def worker(lock: Path, tmp_path: Path, free_port: int) -> Iterator[Product]:
    """A real build worker."""
    product = Product(tmp_path, free_port)
    celery = ["-A", "composer_web", "worker", "--pool", "threads", "-c", "1", "--without-gossip", "--without-mingle"]
    product.commands["build"] = ["-c", WORKER, str(lock), *celery, "-Q", "build", "-n", "build@%h"]
    product.start("build")
    yield product
    product.stop()


def proven(suite: str) -> bool:
    """Whether the controls of all tasks of a suite have run."""
    return not TaskVersion.objects.filter(suites__name=suite, controls_ok=None).exists()


def test_the_command_builds_suites_whose_controls_a_build_worker_runs(
    worker: Product, people: dict[str, User], bearer: Bearer
) -> None:
    said = command("build_suites", "--train", "0", "--packages", "shelf", "--package-tasks", "3", "--validate")
    suites = list(Suite.objects.all())
    assert suites and all(f"{suite.name}: {suite.memberships.count()} tasks" in said for suite in suites)
    environment = Environment.objects.get(name="shelf")
    assert environment.state == "ready" and environment.source == "shelf==1.2" and environment.detail["tests"] == 8
    for suite in suites:
        eventually(lambda name=suite.name: proven(name), seconds=300, what=f"the controls of {suite.name}")
        versions = list(suite.versions.all())
        assert all(v.controls_ok and v.environment == environment for v in versions)
        pages = Client()
        pages.force_login(people["viewer"])
        shown = pages.get(f"/suites/{suite.name}/").content.decode()
        assert all(v.task.slug in shown for v in versions)
        answer = Client().get("/api/v1/tasks", {"suite": suite.name, "controls": "true"}, headers=bearer("viewer"))
        assert len(answer.json()["items"]) == len(versions)


def test_an_environment_that_the_api_asks_for_is_built_by_the_worker(
    worker: Product, people: dict[str, User], bearer: Bearer
) -> None:
    """Ready, without tests, or not to be had: the page, the API and the command line say the same."""
    words = {
        "shelf": "",
        "bare": "carries no tests. Choose a package whose tests pass offline",
        "gone": "is not in the cache and cannot be fetched",
    }
    for name in words:
        asked = Client().post(
            "/api/v1/environments",
            {"package": name},
            content_type="application/json",
            headers=bearer("operator", "operate"),
        )
        assert asked.status_code == 201, asked.content
    eventually(
        lambda: not Environment.objects.exclude(state__in=["ready", "failed"]).exists(), seconds=300, what="the builds"
    )
    pages = Client()
    pages.force_login(people["viewer"])
    for name, said in words.items():
        answer = Client().get(f"/api/v1/environments/{name}", headers=bearer("viewer")).json()
        assert answer["state"] == ("failed" if said else "ready") and said in answer["failure"]
        shown = pages.get(f"/environments/{Environment.objects.get(name=name).pk}/").content.decode()
        assert said in shown
        if said:
            with pytest.raises(CommandError) as refusal:
                command("build_suites", "--train", "0", "--packages", name)
            assert said in str(refusal.value)
