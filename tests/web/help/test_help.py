"""The help site: built strictly, complete in its reference, and served to whoever is logged in."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.api_root import api
from composer_web.env import PREFIX, Env
from composer_web.help import views
from composer_web.ui.templatetags import nav
from opencomposer.app import NOUNS
from scripts.docs import build, sources
from scripts.docs.build import REFERENCE, BuildError
from trainer.config import RunConfig
from trainer.learning.metrics import METRICS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("help") / "site"
    build.build(made)
    return made


@pytest.fixture
def served(site: Path, monkeypatch: pytest.MonkeyPatch, people: dict[str, User], client: Client) -> Client:
    monkeypatch.setattr(views, "SITE", site)
    client.force_login(people["viewer"])
    return client


def reference(name: str) -> str:
    return REFERENCE[f"reference/{name}.md"]()


def test_pages_need_nothing_from_elsewhere_and_no_exception_of_the_policy(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text()
        assert not re.findall(r"<script>|<style|\bstyle=\"|\bon\w+=\"|javascript:", text), page
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"([^\"]+)\"", text)
        assert loaded and not [target for target in loaded if re.match(r"\w+:|//", target)], page
        for target in loaded:
            assert (page.parent / target.partition("?")[0]).resolve().exists(), (page, target)


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    build.stage(tmp_path)
    with (tmp_path / "docs/index.md").open("a") as index:
        index.write("\n[lost](nowhere.md) and [lost](concepts/task.md#no-such-heading)\n")
    with pytest.raises(BuildError) as failed:
        build.render(tmp_path)
    assert "page does not exist" in str(failed.value) and "anchor does not exist" in str(failed.value)


def test_a_page_that_the_navigation_lacks_is_named(tmp_path: Path) -> None:
    shutil.copytree(build.REPOSITORY / "docs/concepts", tmp_path / "docs/concepts")
    shutil.copy(build.REPOSITORY / "mkdocs.yml", tmp_path)
    assert build.unlisted(tmp_path) == []
    (tmp_path / "docs/concepts/new.md").write_text("# New\n")
    assert build.unlisted(tmp_path) == ["concepts/new.md"]


def test_long_lines_and_broken_links_of_pages_outside_the_site_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "REPOSITORY", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text(f"# A page\n{'x' * (sources.MAX_LINE + 1)}\n")
    (tmp_path / "README.md").write_text("[a](docs/page.md#a-page) [b](docs/page.md#b) [c](docs/gone.md)\n")
    (tmp_path / "AGENTS.md").write_text("")
    assert [problem.partition(";")[0] for problem in sources.problems()] == [
        "docs/page.md:2: 201 characters, at most 200",
        "README.md: docs/page.md has no heading #b",
        "README.md: docs/gone.md does not exist",
    ]


def test_the_reference_has_every_key_of_a_run() -> None:
    text, schema = reference("configuration"), RunConfig.model_json_schema()
    for name, part in {"RunConfig": schema, **schema["$defs"]}.items():
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for key in part["properties"]:
            assert f"\n| `{key}` | " in section, f"{name}.{key}"


def test_the_reference_has_every_setting_and_metric() -> None:
    settings, metrics = reference("settings"), reference("metrics")
    assert [name for name in Env.model_fields if f"| `{PREFIX}{name.upper()}` |" not in settings] == []
    assert [name for name in METRICS if f"| `{name}` |" not in metrics] == []


def test_the_reference_has_every_command() -> None:
    text = reference("cli")
    commands = [f"opencomposer {noun.name} {one.name}" for noun in NOUNS for one in noun.app.registered_commands]
    assert len(commands) > 100
    assert [command for command in commands if f"\n### {command}\n" not in text] == []


def test_the_reference_has_every_operation_and_schema() -> None:
    operations, schemas, described = reference("api"), reference("schemas"), api.get_openapi_schema()
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            assert f"\n### {one['operationId']}\n\n`{method.upper()} {path}`\n" in operations
    assert [name for name in described["components"]["schemas"] if f"\n## {name}\n" not in schemas] == []


def test_a_visitor_is_asked_to_log_in(site: Path, monkeypatch: pytest.MonkeyPatch, client: Client, db: None) -> None:
    monkeypatch.setattr(views, "SITE", site)
    answer = client.get("/help/concepts/task/")
    assert answer.status_code == 302 and answer["location"].startswith("/login/?next=/help/concepts/task/")


def test_pages_and_their_files_are_served_under_the_strict_policy(served: Client) -> None:
    answer = served.get("/help/")
    assert answer.status_code == 200 and answer["content-type"] == "text/html"
    policy = dict(part.strip().split(" ", 1) for part in answer["content-security-policy"].split(";"))
    assert policy["script-src"] == policy["default-src"] == "'self'" and "style-src" in policy
    files = set(re.findall(r"(?:src|href)=\"(?:\./)?((?:assets|img)/[^\"]+)\"", answer.content.decode()))
    kinds = {served.get(f"/help/{file}")["content-type"] for file in files}
    assert {"text/css", "text/javascript", "image/svg+xml", "image/png"} <= kinds
    assert "<h1" in served.get("/help/reference/configuration/").content.decode()


def test_a_folder_without_its_slash_leads_to_the_page(served: Client) -> None:
    assert served.get("/help/concepts/task")["location"] == "/help/concepts/task/"


def test_what_the_browser_has_is_not_sent_again(served: Client) -> None:
    first = served.get("/help/")
    again = served.get("/help/", headers={"if-modified-since": first["last-modified"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["no-such-page/", "../../manage.py", "%2e%2e/%2e%2e/manage.py", "a%00b", "/etc/passwd"]
)
def test_nothing_outside_of_the_site_is_served(served: Client, path: str) -> None:
    assert served.get(f"/help/{path}").status_code == 404


def test_a_site_that_is_not_built_says_what_to_do(
    served: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(views, "SITE", tmp_path)
    answer = served.get("/help/")
    assert answer.status_code == 404 and "make docs" in answer.content.decode()


def test_the_frame_of_every_page_links_to_its_help(served: Client) -> None:
    assert 'href="/help/concepts/step/" data-help' in served.get("/runs/").content.decode()
    for page in {*nav.HELP.values(), ""}:
        assert served.get(f"/help/{page}").status_code == 200, page
