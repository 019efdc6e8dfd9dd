"""Repositories by page, API and command line: what is refused, what is stored, and what a build says while it runs."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import Conflict, UserError
from composer_web.env import env
from composer_web.repositories import installing, places, services, tokens
from composer_web.repositories.building import build_environment
from composer_web.repositories.http import selectors
from composer_web.repositories.models import Environment, Repository
from composer_web.repositories.requests import request_archive, request_repository
from sandbox.repositories import git
from tests.web.git_server import presented, private_repositories
from tests.web.helpers import eventually

SECRET = "tok-3f9c-do-not-show"
HALVES = [[text[:9], text[9:]] for text in (SECRET, presented(SECRET).removeprefix("Basic "))]
"""The token as it is kept and as it is sent; in halves, so that who looks for it does not find itself."""
LOOKING = """const fs = require('node:fs'), path = require('node:path');
function* files(top) {
  for (const one of fs.readdirSync(top, { withFileTypes: true })) {
    const full = path.join(top, one.name);
    if (one.isDirectory()) yield* files(full); else if (one.isFile()) yield full;
  }
}
exports.seen = (secret) => {
  const processes = fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name));
  const places = processes.flatMap((pid) => [`/proc/${pid}/environ`, `/proc/${pid}/cmdline`]);
  return [...places, ...files(process.env.HOME), ...files('/tmp')].filter((place) => {
    try { return fs.readFileSync(place, 'latin1').includes(secret); } catch { return false; }
  });
};
"""
ADDRESS = "https://git.inside.example/team/shop.git"
Bearer = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host that needs no look-up, and a folder whose repositories may be read."""
    monkeypatch.setenv("OPENCOMPOSER_GIT_HOSTS", "git.inside.example")
    monkeypatch.setenv("OPENCOMPOSER_GIT_ROOTS", str(tmp_path))
    env.cache_clear()
    yield
    env.cache_clear()


def archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, text in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def repository(folder: Path, files: dict[str, str], submodule: str = "") -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    module = ["update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{submodule}"]
    for words in (["init", "-q"], ["add", "-A"], *([module] if submodule else []), [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def operator(client: Client, people: dict[str, User]) -> Client:
    client.force_login(people["operator"])
    return client


def test_a_private_repository_and_where_its_token_is_not(operator: Client, bearer: Bearer) -> None:
    said = {"kind": "git", "location": ADDRESS, "revision": "main", "token": SECRET}
    page = operator.post("/environments/new/", said, follow=True).content.decode()
    assert "stored encrypted" in page and "not fetched yet" in page and SECRET not in page
    made = Repository.objects.get(name="shop")
    assert SECRET not in made.token and tokens.decrypt(made.token).get_secret_value() == SECRET
    answers = [
        operator.get("/environments/").content.decode(),
        Client().get("/api/v1/environments/repositories", headers=bearer("viewer")).content.decode(),
        Client().get("/api/v1/environments/shop", headers=bearer("viewer")).content.decode(),
        json.dumps(list(AuditEntry.objects.values_list("detail", flat=True))),
    ]
    assert all(SECRET not in text and made.token not in text for text in answers)
    assert '"private": true' in answers[1].replace('"private":true', '"private": true')


def test_a_token_of_another_key_is_asked_for_again(settings, db: None) -> None:
    stored = tokens.encrypt(SECRET)
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another"
    assert tokens.decrypt(stored).get_secret_value() == SECRET
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(UserError, match="give it again"):
        tokens.decrypt(stored)


@pytest.mark.parametrize(
    ("said", "field", "why"),
    [
        ({"kind": "git", "location": "ssh://x/y"}, "location", "not an https address"),
        ({"kind": "git", "location": f"https://me:{SECRET}@git.inside.example/x"}, "location", "its own field"),
        ({"kind": "git", "location": ADDRESS, "revision": "--x"}, "revision", "not a branch"),
        ({"kind": "path", "location": "/etc"}, "location", "not below a folder"),
        ({"kind": "sdist", "location": "no such/name"}, "location", "not a package"),
        ({"kind": "sdist", "location": "toolz", "revision": "x y"}, "revision", "not a version"),
        ({"kind": "sdist", "location": "toolz", "token": SECRET}, "token", "belongs to a git address"),
        ({"kind": "git", "location": ADDRESS, "name": "../x"}, "name", "not usable"),
    ],
)  # fmt: skip
def test_bad_input_names_its_field_and_stores_nothing(operator: Client, bearer: Bearer, said, field, why) -> None:
    page = operator.post("/environments/new/", said)
    assert page.status_code == 400 and why in page.content.decode() and SECRET not in page.content.decode()
    answer = Client().post(
        "/api/v1/environments/repositories",
        said,
        content_type="application/json",
        headers=bearer("operator", "operate"),
    )
    assert answer.status_code == 422 and answer.json()["error"]["field"] == field, answer.content
    assert SECRET not in answer.content.decode()
    assert not Repository.objects.exists() and not Environment.objects.exists()


def test_an_upload_is_read_whole_before_it_is_kept(operator: Client, bearer: Bearer) -> None:
    slip = SimpleUploadedFile("bad.tar.gz", archive({"../../x": "x"}))
    page = operator.post("/environments/new/", {"kind": "archive", "archive": slip})
    assert page.status_code == 400 and "unsafe or oversized member" in page.content.decode()
    assert "Choose the archive" in operator.post("/environments/new/", {"kind": "archive"}).content.decode()
    assert not Repository.objects.exists()
    good = SimpleUploadedFile("shop-1.0.tar.gz", archive({"shop/setup.py": "", "shop/shop.py": "x = 1\n"}))
    answer = Client().post(
        "/api/v1/environments/repositories/archive",
        {"archive": good, "name": "shop"},
        headers=bearer("operator", "operate"),
    )
    assert answer.status_code == 201, answer.content
    assert (answer.json()["kind"], answer.json()["location"], answer.json()["state"]) == (
        "archive",
        "shop-1.0.tar.gz",
        "requested",
    )
    with pytest.raises(Conflict, match="choose another name"):
        request_archive(name="shop", filename="x.tar.gz", content=archive({"a/b.py": "x"}))


def test_only_operators_add_and_stop(client: Client, people: dict[str, User]) -> None:
    made = request_repository(kind="git", location=ADDRESS)
    client.force_login(people["viewer"])
    for path in ("new/", f"{made.environment.pk}/cancel/", f"{made.environment.pk}/again/"):
        assert client.post(f"/environments/{path}").status_code == 403
    assert client.get("/environments/new/").status_code == 403


def test_a_build_that_nobody_began_is_stopped_at_once(operator: Client) -> None:
    made = request_repository(kind="git", location=ADDRESS)
    path = f"/environments/{made.environment.pk}/"
    assert "Stop the build" in operator.get(path).content.decode()
    assert "Build again" in operator.post(f"{path}cancel/", follow=True).content.decode()
    assert selectors.get_environment("shop").state == "failed"
    assert "is failed: nothing is being built" in operator.post(f"{path}cancel/", follow=True).content.decode()
    operator.post(f"{path}again/")
    assert selectors.get_environment("shop").state == "requested"


@pytest.mark.django_db(transaction=True)
def test_a_build_pins_what_it_fetched_and_says_why_it_was_discarded(tmp_path: Path, operator: Client) -> None:
    """Nothing but the machine's Python is asked: the checkout wants another one. What is left out of it is on the page."""
    files = {"pyproject.toml": '[project]\nname = "shop"\nversion = "1"\nrequires-python = "<3"\n', "shop.py": "x = 1\n",
             "LICENSE": "Permission is hereby granted, free of charge, to any person obtaining a copy\n",
             "large.bin": f"{git.LFS.decode()}\noid sha256:{'0' * 64}\nsize 9\n"}  # fmt: skip
    folder = repository(tmp_path / "shop", files, submodule="parts")
    made = request_repository(kind="path", location=str(folder))
    assert build_environment(made.environment.pk).startswith("failed: language-version")
    made.refresh_from_db()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert (made.pin, made.licence) == (commit.strip(), "MIT")
    page = operator.get(f"/environments/{made.environment.pk}/").content.decode()
    for word in (
        commit.strip(),
        "MIT",
        "1 submodules are left out",
        "1 files are LFS pointers",
        "requires Python &lt;3",
    ):
        assert word in page, word
    environment = selectors.get_environment("shop")
    assert environment.state == "failed" and "requires Python <3" in environment.failure
    log = selectors.build_log(environment)
    assert "goal 10" in log and "attempt 1 failed" in log and not environment.lines.exists()
    assert build_environment(made.environment.pk) == "nothing to do"


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin") is None, reason="no npm on this machine")
def test_a_private_repository_becomes_an_environment_that_never_saw_the_token(
    tmp_path: Path, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the form to stable tests, as the build workers do it. The repository's own test looks for the token wherever a
    program in the sandbox can look, while it is installed and in every check afterwards."""
    monkeypatch.setenv("OPENCOMPOSER_GIT_HOSTS", "127.0.0.1")
    env.cache_clear()
    files = {
        "looking.js": LOOKING,
        "looking.test.js": "const { test } = require('node:test');\nconst { seen } = require('./looking.js');\n"
        "test('finds what is there', () => { if (!seen('PATH=').length) throw new Error('blind'); });\n"
        f"test('no token', () => {{ for (const part of {HALVES!r}) {{\n"
        "  const found = seen(part.join('')); if (found.length) throw new Error(found.join()); } });\n",
        "package.json": '{"name": "sums", "version": "1.0.0", "main": "sums.js", "scripts": {"test": "node --test"}}',
        "sums.js": "exports.add = (a, b) => a + b;\n",
        "sums.test.js": "const { test } = require('node:test');\nconst { add } = require('./sums.js');\n"
        "test('adds', () => { if (add(2, 3) !== 5) throw new Error('sum'); });\n",
    }
    repository(tmp_path / "sums", files)
    with private_repositories(tmp_path, SECRET) as host:
        said = {"kind": "git", "location": f"{host}/sums"}
        page = operator.post("/environments/new/", {**said, "name": "closed"}, follow=True)
        assert page.status_code == 200 and "not fetched yet" in page.content.decode()
        assert build_environment(selectors.get_environment("closed").pk).startswith(
            "failed: the repository cannot be read"
        )
        operator.post("/environments/new/", {**said, "token": SECRET})
        environment = selectors.get_environment("sums")
        assert build_environment(environment.pk) == "ready", selectors.build_log(selectors.get_environment("sums"))
    environment = selectors.get_environment("sums")
    looked = {"looking.test.js::finds what is there", "looking.test.js::no token"}
    assert installing.built_package(environment).tests.keys() == {"sums.test.js::adds", *looked}
    kept = [selectors.build_log(environment), installing.install_record(environment).model_dump_json()]
    for secret in ("".join(halves) for halves in HALVES):
        assert not any(secret in text for text in kept)
        layer = places.store().repository(environment.digest or "").parent
        assert not any(secret.encode() in file.read_bytes() for file in layer.rglob("*") if file.is_file())
    assert environment.detail["unseen_goals_met"] == "7 of 7, three times"
    text = operator.get(f"/environments/{environment.pk}/").content.decode()
    for word in ("ready", "npm test", "goal 10", "accepted: 3 stable tests"):
        assert word in text, word
    assert build_environment(environment.pk) == "nothing to do"


@pytest.mark.django_db(transaction=True)
def test_a_running_build_shows_its_log_and_can_be_stopped(
    tmp_path: Path, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installation itself stands still here, so that there is time to look."""

    async def standing(*args: object, log: Callable[[str], None], **rest: object) -> None:
        log("standing still")
        await asyncio.Event().wait()

    monkeypatch.setattr(installing, "install", standing)
    monkeypatch.setattr(installing, "LOOK_SECONDS", 0.05)
    made = request_repository(kind="path", location=str(repository(tmp_path / "shop", {"shop.py": "x = 1\n"})))
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(_closing(made.environment.pk)))
    thread.start()
    try:
        client = Client()
        client.force_login(people["operator"])
        path = f"/environments/{made.environment.pk}/"
        eventually(
            lambda: "standing still" in client.get(path).content.decode(), seconds=60, what="the log on the page"
        )
    finally:
        services.cancel_build(environment=made.environment)
        thread.join(60)
    assert ended == ["failed: cancelled: what was done so far is kept"]
    assert "standing still" in selectors.build_log(selectors.get_environment("shop"))


def _closing(pk: int) -> str:
    from django.db import connections

    try:
        return build_environment(pk)
    finally:
        connections.close_all()
