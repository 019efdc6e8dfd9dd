"""Corpora of text: of repositories, folders and files, kept clear of what is measured, named by the runs that learn of them."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.accounts.projects import create_project
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.core.models import Outbox
from composer_web.core.queue import leases
from composer_web.datasets import codebases, corpora, corpus_services, guards, selectors, services
from composer_web.datasets.models import Corpus
from composer_web.datasets.schemas import CorpusWanted
from composer_web.datasets.tasks import prepare_corpus
from composer_web.policies.models import Policy
from composer_web.repositories import places
from composer_web.repositories.models import Environment, Repository
from composer_web.runs import services as runs
from composer_web.runs.training.stages import text_folders
from composer_web.tasks.models import Suite
from sandbox.tasks.procedural import generate
from tests.web.cli.support import Cli, data
from trainer.config import RunConfig
from trainer.errors import StageError
from trainer.midtrain.corpus.store import documents, prepare
from trainer.toy.preset import toy_midtrain, toy_sft

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(services, "root", lambda: tmp_path / "datasets")
    monkeypatch.setattr(corpora, "root", lambda: tmp_path / "corpora")
    for module in (services, selectors):
        monkeypatch.setattr(module, "incoming", lambda: tmp_path / "incoming")
    monkeypatch.setattr(places, "git_roots", lambda: (tmp_path,))
    monkeypatch.setattr(places, "store", lambda: SimpleNamespace(repository=lambda digest: tmp_path / "checkout"))
    (tmp_path / "incoming").mkdir()
    return tmp_path


def text(word: str) -> str:
    return "".join(f"def {word}_{n}(values):\n    return [{word} + {n * 7} for {word} in values]\n" for n in range(6))


def rows(*words: str, **fields: str) -> bytes:
    return b"".join(json.dumps({"text": text(word), "path": f"{word}.py", **fields}).encode() + b"\n" for word in words)


def made(name: str = "mine", *, upload: bytes = b"", sources: list[str] | None = None, **wanted: Any) -> Corpus:
    files = {"rows.jsonl": io.BytesIO(upload)} if upload else {}
    corpus_services.ask(name=name, wanted=CorpusWanted(sources=sources or [], **wanted), files=files)
    corpus_services.write(Corpus.objects.get(name=name).pk)
    return corpora.get(name)


@pytest.fixture
def shop(here: Path) -> tuple[str, str]:
    """A repository of this machine: its reference, and its commit."""
    root = here / "shop"
    root.mkdir()
    (root / "cart.py").write_text(text("cart"))
    (root / "LICENSE").write_text("MIT License\n")

    def git(*words: str) -> str:
        named = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        return subprocess.run(named, cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    (root / "cart.py").write_text("later = 1\n")
    Repository.objects.create(name="shop", kind="path", location=str(root))
    return "repository:shop", git("rev-parse", "HEAD")


def test_files_repositories_and_environments_are_prepared_by_a_worker(
    people: dict[str, User], shop: tuple[str, str], here: Path
) -> None:
    (here / "checkout").mkdir()
    (here / "checkout" / "add.py").write_text(text("add"))
    source = Repository.objects.create(name="far", kind="git", location="https://a/b.git", pin="abc", licence="BSD")
    Environment.objects.create(name="add", source="x", state="ready", digest="sha256:1", repository=source)
    wanted = CorpusWanted(sources=[shop[0], "environment:add"])
    asked = corpus_services.ask(
        name="all",
        wanted=wanted,
        files={"../x y.jsonl": io.BytesIO(rows("row", license="mit"))},
        actor=people["operator"],
    )
    message = Outbox.objects.get(task="datasets.prepare_corpus")
    assert (asked.state, message.queue) == ("waiting", "io")
    prepare_corpus(**message.kwargs)
    found = corpora.get("all")
    assert (found.state, found.documents, found.dropped, found.cause) == ("done", 3, 0, "")
    facts = {one["name"]: (one["kind"], one["revision"], one["licences"]) for one in found.provenance["sources"]}
    assert facts == {
        "shop": ("git", shop[1], {"MIT License": 1}),
        "add": ("folder", "abc", {"BSD": 1}),
        "00-x_y.jsonl": ("jsonl", "", {"mit": 1}),
    }
    assert found.provenance["languages"] == {"python": 3} and found.characters > 300
    kept = {one.path: one.text for one in documents(corpora.folder_of("all"))}
    assert kept["cart.py"] == text("cart"), "the commit at HEAD, not the work tree"
    assert not services.uploads_of(found).exists()
    assert corpus_services.write(found.pk) == "nothing to do"


def test_a_worker_that_dies_is_followed_by_another(
    here: Path, monkeypatch: pytest.MonkeyPatch, people: dict[str, User]
) -> None:
    asked = corpus_services.ask(name="mine", wanted=CorpusWanted(), files={"a.jsonl": io.BytesIO(rows("one", "two"))})

    class Killed(BaseException):
        """Nothing of the product catches it."""

    def dies() -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(leases, "check", dies)
        with pytest.raises(Killed):
            corpus_services.write(asked.pk)
    assert corpora.get("mine").state == "running" and corpora.known() == ([], [])
    with monkeypatch.context() as patched:
        patched.setattr(corpora, "figures", lambda made: dies())  # its files are complete, and its row does not say so
        with pytest.raises(Killed):
            corpus_services.write(asked.pk)
    assert (corpora.folder_of("mine") / "provenance.json").exists() and corpora.known().prepared == []
    with monkeypatch.context() as patched:
        patched.setattr(corpus_services, "prepare", lambda *a, **b: pytest.fail("it was complete"))
        assert corpus_services.write(asked.pk) == "2 documents"
    assert corpora.known() == (["mine"], []) and not services.uploads_of(asked).exists()


def test_a_preparation_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_SECONDS", -1.0)
    found = made(upload=rows("one"))
    assert found.state == "failed" and "choose fewer sources" in found.cause


def test_text_is_kept_clear_of_what_is_measured(make_suite: Callable[..., Suite]) -> None:
    make_suite("held-out", 3)
    (_, answer), *_ = generate(1, "held-out").gold.items()
    leak = json.dumps({"text": answer, "path": "leak.py"}).encode() + b"\n"
    found = made(upload=rows("one", "one") + leak)
    assert found.provenance["dropped"] == {"duplicate": 1, "contaminated": 1} and found.dropped == 2
    assert found.provenance["examples"]["contaminated"] == ["00-rows.jsonl:leak.py"]
    assert [guard["suite"] for guard in found.provenance["guards"]] == ["held-out"]
    assert guards.unguarded(corpora.provenance("mine", "stage.corpus").guards) == []
    assert made("open", upload=rows("two"), suites=[]).provenance["guards"] == []


def test_guards_of_a_library_hold_in_another_project(make_suite: Callable[..., Suite]) -> None:
    make_suite("held-out", 3)
    other = create_project(slug="other", name="Other", actor=None)
    with acting(Access(0, "operator", other.pk, other.pk, (DEFAULT_PROJECT,))):
        found = made(upload=rows("one"))
        assert [guard["tasks"] for guard in found.provenance["guards"]] == [3]


def test_names_and_sources_are_checked(here: Path, shop: tuple[str, str]) -> None:
    made(upload=rows("one"))
    (corpora.root() / "plain").mkdir()
    (here / "incoming" / "notes.txt").write_text("x")
    file = {"a.jsonl": io.BytesIO(b"{}")}
    for name, wanted, files, field, words in (
        ("../x", {}, file, "name", "beginning with no sign"),
        ("mine", {}, file, "name", "there is a corpus or folder 'mine' already; choose another name"),
        ("plain", {}, file, "name", "already"),
        ("other", {}, {}, "files", "a corpus needs a source"),
        ("other", {}, {"a.exe": io.BytesIO()}, "files", "no .jsonl, .parquet file"),
        ("other", {"suites": ["nothing"]}, file, "suites", "no suite 'nothing'"),
        ("other", {"sources": ["repository:none"]}, {}, "sources", "no repository 'none'"),
        ("other", {"sources": ["environment:../x"]}, {}, "sources", "write environment:NAME"),
        ("other", {"sources": ["notes.txt"]}, {}, "sources", "no .jsonl or .parquet file"),
        ("other", {"sources": ["corpus:mine"]}, {}, "sources", "in the folder incoming"),
    ):
        with pytest.raises(UserError, match=words) as refused:
            corpus_services.ask(name=name, wanted=CorpusWanted(**wanted), files=files)
        assert refused.value.field == field
    for wrong in ({"provenance": None}, {"documents": 0}, {"state": "odd"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Corpus.objects.filter(name="mine").update(**wrong)
    assert Corpus.objects.count() == 1


@pytest.mark.parametrize("given", ["../secret", "/etc", "link", "..", "nothing", "a\0b", "n" * 400])
def test_only_what_lies_below_incoming_is_read(here: Path, given: str) -> None:
    (here / "secret").mkdir()
    (here / "secret" / "a.jsonl").write_bytes(rows("one"))
    (here / "incoming" / "link").symlink_to(here / "secret")
    with pytest.raises(UserError, match="in the folder incoming") as refused:
        corpus_services.ask(name="mine", wanted=CorpusWanted(sources=[given]))
    assert refused.value.field == "sources"


def test_folders_below_incoming_are_read_as_rows_or_as_files(here: Path) -> None:
    for name, file, content in (("rows", "a.jsonl", rows("one", "two")), ("code", "b.py", text("three").encode())):
        (here / "incoming" / name).mkdir()
        (here / "incoming" / name / file).write_bytes(content)
    (here / "incoming" / "rows" / "link.jsonl").symlink_to("/etc/hostname")
    found = made(sources=["rows", "code"])
    assert [(one["name"], one["kind"], one["documents"]) for one in found.provenance["sources"]] == [
        ("code", "folder", 1), ("rows/a.jsonl", "jsonl", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("upload", "why"),
    [
        (b"{}\n", "row 1: no text under text, content, code"),
        (b"\xff\n", "line 1: not JSON"),
        (b'{"text": "\xff"}\n', "not valid Unicode"),
        (b'{"text": "\\ud800"}\n', "not valid Unicode"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b'{"text": " "}\n', "no document is left"),
        (b"\0\n", "line 1: not JSON"),
    ],
)
def test_what_cannot_be_prepared_says_why(upload: bytes, why: str) -> None:
    found = made(upload=upload)
    assert found.state == "failed" and why in found.cause
    with pytest.raises(UserError, match="corpus 'mine' is failed: "):
        corpora.provenance("mine", "stage.corpus")
    corpus_services.remove(corpus=found)
    assert not services.uploads_of(found).exists() and not corpora.folder_of("mine").exists()
    with pytest.raises(NotFound):
        corpora.get("mine")


def test_odd_fields_of_a_row_reach_the_database_without_control_characters() -> None:
    row = {"text": "x = 1", "language": "a\0b", "license": "c\ud800", "path": "d\0" * 900}
    found = made(upload=json.dumps(row).encode() + b"\n" + json.dumps({**row, "text": "x  =  1"}).encode())
    assert (found.state, found.cause, found.dropped) == ("done", "", 1)
    assert found.provenance["languages"] == {"a b": 1}


def mid(**stage: Any) -> RunConfig:
    return RunConfig(name="learn", stage=toy_midtrain(steps=2, **stage))


def test_a_run_names_its_corpus(base: Policy, make_suite: Callable[..., Suite]) -> None:
    make_suite("held-out", 3)
    with pytest.raises(UserError, match=r"no prepared corpus 'mine'; there are: none yet; .*page Corpora") as refused:
        runs.check_config(mid(corpus="mine"))
    assert refused.value.field == "stage.corpus"
    corpus = made(upload=rows("one"), suites=[])
    assert any("not decontaminated against held-out" in warning for warning in runs.check_config(mid(corpus="mine")))
    for stage in (toy_midtrain(corpus="mine"), toy_midtrain(corpus_mixture="mine = 2"), toy_midtrain(codebase="corpus:mine"),
                  toy_sft(replay_corpus="mine", replay_share=0.5)):  # fmt: skip
        run = runs.create_run(config=RunConfig(name="learn", stage=stage))
        with pytest.raises(Conflict, match=f"run {run.pk} names corpus 'mine'"):
            corpus_services.remove(corpus=corpus)
    corpus_services.remove(corpus=made("min", upload=rows("one"), suites=[]))  # a part of that name


def test_a_run_measures_a_codebase_by_reference(base: Policy, shop: tuple[str, str], here: Path) -> None:
    for name, words in (
        ("environment:none", "no environment 'none'"), ("repository:none", "no repository 'none'"),
        ("corpus:none", "no corpus 'none'; there are: none yet"), ("none", "no folder 'none'.*write repository:NAME"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words) as refused:
            runs.check_config(mid(codebase=name))
        assert refused.value.field == "stage.codebase"
    made(upload=rows("one"), suites=[])
    (corpora.root() / "plain").mkdir()
    warnings = runs.check_config(mid(codebase="corpus:mine", corpus="mine"))
    assert any("is trained on as well" in warning for warning in warnings)
    for name, path in (
        (shop[0], here / "shop"), ("plain", corpora.root() / "plain"),
        ("corpus:mine", corpora.folder_of("mine") / "documents.jsonl"),
    ):  # fmt: skip
        run = runs.create_run(config=mid(codebase=name))
        assert text_folders(run, run.configuration.stage) == {"corpora": corpora.root(), "codebase": path.resolve()}
    assert codebases.of_runs(corpora.known()) == ["plain", shop[0], "corpus:mine"]
    Repository.objects.all().delete()
    run = runs.create_run(config=mid())
    with pytest.raises(StageError, match="no repository 'shop'"):
        text_folders(run, toy_midtrain(codebase=shop[0]))


def test_a_project_sees_its_own_corpora_and_those_of_the_installation(here: Path) -> None:
    made(upload=rows("one"), suites=[])
    installed = here / "corpora" / "old"
    (here / "old.jsonl").write_bytes(rows("two"))
    prepare(installed, [here / "old.jsonl"])
    assert [(one.name, one.installed, one.documents) for one in corpora.listed()] == [
        ("mine", False, 1), ("old", True, 1),
    ]  # fmt: skip
    with pytest.raises(Conflict, match="of the installation"):
        corpus_services.remove(corpus=corpora.get("old"))
    other = create_project(slug="other", name="Other", actor=None)
    with acting(Access(0, "operator", other.pk, other.pk)):
        assert [one.name for one in corpora.listed()] == ["old"] and corpora.known() == (["old"], [])
        assert corpora.provenance("old", "stage.corpus").documents == 1
        for name in ("mine", "corpus:mine"):
            with pytest.raises(UserError, match="there is no"):
                codebases.of_run(name)
        with pytest.raises(UserError, match="no prepared corpus 'mine'"):
            corpora.provenance("mine", "stage.corpus")
        with pytest.raises(Conflict, match="already"):
            corpus_services.ask(name="mine", wanted=CorpusWanted(), files={"a.jsonl": io.BytesIO(rows("one"))})


def test_manage_py_prepares_for_every_project(base: Policy, make_suite: Callable[..., Suite], here: Path) -> None:
    make_suite("held-out", 3)
    source = here / "source"
    source.mkdir()
    (_, answer), *_ = generate(1, "held-out").gold.items()
    (source / "leak.py").write_text(answer)
    (source / "fine.py").write_text("x = 1\n")
    out = io.StringIO()
    call_command("corpus", "all", source=[source], stdout=out)
    facts = json.loads(out.getvalue())
    assert (facts["documents"], facts["dropped"]) == (1, {"contaminated": 1})
    assert [guard["suite"] for guard in facts["guards"]] == ["held-out"]
    assert not [warning for warning in runs.check_config(mid(corpus="all")) if "decontaminated" in warning]
    make_suite("later", 1)
    call_command("corpus", "open", source=[source], against=["later"], stdout=out)
    (warning,) = (one for one in runs.check_config(mid(corpus="open")) if "decontaminated" in one)
    assert "corpus 'open' was not decontaminated against held-out" in warning
    with pytest.raises(UserError, match=r"no prepared corpus 'none'; there are: all, open"):
        runs.check_config(mid(corpus="none"))
    made(upload=rows("one"), suites=[])
    with pytest.raises(CommandError, match="a project has a corpus 'mine'"):
        call_command("corpus", "mine", source=[source], stdout=out)


def test_the_page_makes_one_and_shows_what_it_is_made_of(
    people: dict[str, User], client: Client, make_suite: Callable[..., Suite], shop: tuple[str, str]
) -> None:
    make_suite("held-out", 3)
    client.force_login(people["operator"])
    form = client.get("/datasets/new-corpus/").content.decode()
    assert f"<option>{shop[0]}</option>" in form and 'value="held-out"' in form and " checked" in form
    empty = client.post("/datasets/new-corpus/", {"name": "mine", "guards": ["held-out"]})
    assert empty.status_code == 422 and b"a corpus needs a source" in empty.content and b'value="mine"' in empty.content
    file = SimpleUploadedFile("rows.jsonl", rows("one", "one"))
    answer = client.post(
        "/datasets/new-corpus/", {"name": "mine", "guards": ["held-out"], "files": [file], "sources": [shop[0]]}
    )
    assert answer["Location"] == "/datasets/corpora/mine/"
    assert b"Being prepared" in client.get("/datasets/corpora/mine/").content
    corpus_services.write(Corpus.objects.get().pk)
    shown = client.get("/datasets/corpora/mine/").content.decode()
    for words in ("2 documents", "MIT License (1)", shop[1][:12], "duplicate", "00-rows.jsonl:one.py", "held-out"):
        assert words in shown
    listed = client.get("/datasets/corpora/?sort=-documents").content.decode()
    assert "mine" in listed and "python" in listed and "00-rows.jsonl, shop" in listed
    assert '<option value="mine" selected>' in client.get("/runs/new/?preset=midtrain&corpus=mine").content.decode()
    assert f'<option value="{shop[0]}">' in client.get("/runs/new/?preset=midtrain").content.decode()
    client.force_login(people["viewer"])
    assert client.get("/datasets/new-corpus/").status_code == 403
    assert client.post("/datasets/corpora/mine/remove/").status_code == 403
    client.force_login(people["operator"])
    client.post("/datasets/corpora/mine/remove/")
    assert not Corpus.objects.exists()
    assert client.get("/datasets/corpora/mine/").status_code == 404


def test_the_api_prepares_shows_and_removes(
    client: Client, bearer: Callable[..., dict[str, str]], shop: tuple[str, str]
) -> None:
    operate = bearer("operator", "operate")
    body = {"name": "good", "sources": [shop[0]], "suites": []}
    asked = client.post("/api/v1/corpora", json.dumps(body), content_type="application/json", headers=operate)
    assert asked.status_code == 201 and asked.json()["state"] == "waiting"
    corpus_services.write(Corpus.objects.get().pk)
    found = client.get("/api/v1/corpora/good", headers=operate).json()
    assert (found["state"], found["documents"], found["installed"]) == ("done", 1, False)
    assert found["provenance"]["sources"][0]["revision"] == shop[1]
    again = client.post("/api/v1/corpora", json.dumps(body), content_type="application/json", headers=operate)
    assert again.status_code == 409 and again.json()["error"]["field"] == "name"
    files = [SimpleUploadedFile(f"{word}.jsonl", rows(word)) for word in ("one", "two")]
    asked = client.post("/api/v1/corpora/file/files", {"file": files, "sources": [shop[0]]}, headers=operate)
    assert asked.status_code == 201 and asked.json()["wanted"]["sources"] == [shop[0]]
    corpus_services.write(Corpus.objects.get(name="file").pk)
    listed = client.get("/api/v1/corpora", headers=operate).json()
    assert [(one["name"], one["documents"]) for one in listed] == [("file", 3), ("good", 1)]
    assert client.delete("/api/v1/corpora/file", headers=operate).status_code == 204
    assert client.get("/api/v1/corpora/file", headers=operate).status_code == 404
    bad = client.post("/api/v1/corpora", json.dumps({"name": "x", "sources": ["../run"]}), content_type="application/json",
                      headers=operate)  # fmt: skip
    assert bad.status_code == 422 and bad.json()["error"]["field"] == "sources"
    read = bearer("viewer", "read")
    assert client.delete("/api/v1/corpora/good", headers=read).status_code == 403


def test_the_command_line_prepares_shows_and_removes(cli: Cli, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [here / "one.jsonl", here / "two.jsonl"]
    for file in files:
        file.write_bytes(rows(file.stem))
    (here / "incoming" / "code").mkdir()
    (here / "incoming" / "code" / "a.py").write_text(text("a"))
    words = [word for file in files for word in ("--file", str(file))]
    (asked,) = data(cli("corpora", "create", "ours", *words, "--source", "code", "--json"))
    assert (asked["name"], asked["state"]) == ("ours", "waiting")
    corpus_services.write(Corpus.objects.get().pk)
    assert data(cli("corpora", "get", "ours", "--json"))["documents"] == 3
    assert cli("corpora", "get", "ours", "--follow")[0] == 0
    assert [one["name"] for one in data(cli("corpora", "list", "--json"))] == ["ours"]
    assert cli("corpora", "create", "ours", "--source", "code")[0] == 1
    assert "already" in capsys.readouterr().err
    assert cli("corpora", "create", "more", "--file", str(here / "none"))[0] == 2
    assert cli("corpora", "delete", "ours")[0] == 0 and not Corpus.objects.exists()
