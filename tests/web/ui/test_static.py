"""Static files over ASGI: whole, in ranges, and not again when nothing changed."""

from __future__ import annotations

import gzip
import posixpath
import re
import warnings
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.template.loader import get_template
from django.templatetags.static import static
from django.test import AsyncClient, Client

from composer_web.live import hub
from composer_web.ui.staticversion import VERSIONED, static_version

PATH = "/static/css/tokens.css"


@pytest.fixture
def content() -> bytes:
    found = finders.find("css/tokens.css")
    assert found is not None
    with open(found, "rb") as file:
        return file.read()


async def test_a_file_is_sent_whole_and_nothing_warns(content: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = await AsyncClient().get(PATH)
    assert (answer.status_code, answer.content, answer.streaming) == (200, content, False)
    assert answer["content-type"].startswith("text/css") and int(answer["content-length"]) == len(content)


async def test_what_the_browser_has_is_not_sent_again() -> None:
    client = AsyncClient()
    first = await client.get(PATH)
    again = await client.get(PATH, headers={"if-modified-since": first["last-modified"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_a_part_of_a_file(content: bytes) -> None:
    answer = await AsyncClient().get(PATH, headers={"range": "bytes=10-19"})
    assert (answer.status_code, answer.content) == (206, content[10:20])


def test_a_head_request_has_no_body(content: bytes) -> None:
    answer = Client().head(PATH)
    assert answer.content == b"" and int(answer["content-length"]) == len(content)


def imports_of(name: str) -> set[str]:
    """Modules that a module of `static/js` needs before it runs, and theirs."""
    path = finders.find(f"js/{name}")
    assert path is not None, name
    with open(path, encoding="utf-8") as file:
        named = set(re.findall(r'^import .* from "(\.\.?/[\w/-]+\.js)";', file.read(), re.MULTILINE))
    direct = {posixpath.normpath(posixpath.join(posixpath.dirname(name), other)) for other in named}
    return direct.union(*(imports_of(other) for other in direct))


def preloaded(template: str, kind: str) -> set[str]:
    found = get_template(template).template.source  # type: ignore[attr-defined]
    return set(re.findall(rf"""rel="{kind}" (?:as="script" )?href="{{% static '(?:js/)?([\w./-]+)' %}}""", found))


def test_modules_of_a_page_are_asked_for_at_once() -> None:
    """A browser that finds them one in the other waits for each."""
    base, charts = preloaded("base.html", "modulepreload"), preloaded("partials/chart_head.html", "modulepreload")
    assert base == imports_of("main.js")
    assert charts == {"chart.js"} | imports_of("chart.js") - base
    assert preloaded("partials/chart_head.html", "preload") == {"plotly/plotly.min.js"}


def test_a_file_is_kept_for_good_under_the_name_of_what_it_contains(content: bytes) -> None:
    address = static("css/tokens.css")
    assert VERSIONED.match(address)
    answer = Client().get(address)
    assert answer.content == content and "immutable" in answer["cache-control"]
    other = Client().get(VERSIONED.sub("/static/0123456789ab/", address))
    assert other.content == content, "a page that was open while the product was renewed"
    assert other["cache-control"] == Client().get(PATH)["cache-control"] == "no-cache"
    assert Client().get("/static/0123456789ab/css/none.css").status_code == 404


def test_the_name_changes_with_a_file(tmp_path: Path) -> None:
    names = []
    for text in ("a", "b", "a"):
        (tmp_path / "js").mkdir(exist_ok=True)
        (tmp_path / "js" / "a.js").write_text(text)
        names.append(static_version(tmp_path))
    (tmp_path / "js" / "a.js").rename(tmp_path / "js" / "b.js")
    assert names[0] == names[2] and len({*names, static_version(tmp_path)}) == 3


def test_text_is_sent_compressed_to_who_reads_it(content: bytes) -> None:
    answer = Client().get(static("css/tokens.css"), headers={"accept-encoding": "br, gzip"})
    assert answer["content-encoding"] == "gzip" and gzip.decompress(answer.content) == content
    assert int(answer["content-length"]) == len(answer.content) < len(content)
    plain = Client().get(static("css/tokens.css"))
    assert plain.content == content and "content-encoding" not in plain
    assert answer["vary"] == plain["vary"] == "Accept-Encoding"


def test_the_chart_library_is_the_small_bundle() -> None:
    answer = Client().get("/static/plotly/plotly.min.js", headers={"accept-encoding": "gzip"})
    assert b"(basic - minified)" in gzip.decompress(answer.content)[:100]
    assert len(answer.content) < 420_000
    assert b"MIT License" in Client().get("/static/plotly/LICENSE").content


def test_pages_and_json_are_compressed(db: None) -> None:
    page = Client().get("/login/", headers={"accept-encoding": "gzip"})
    assert page["content-encoding"] == "gzip"
    assert b"<!doctype html>" in gzip.decompress(page.content)[:100]
    assert "Accept-Encoding" in page["vary"]
    assert "content-encoding" not in Client().get("/login/")


def test_a_new_state_shows_within_a_second() -> None:
    """What may lie between a change and its refetch: the hub's gap, the browser's between two refreshes, and what an element asks
    for. A quarter of the second is left for the answer."""
    live = finders.find("js/live.js")
    assert live is not None
    gap = re.search(r"^const INTERVAL = (\d+); // ms", Path(live).read_text(encoding="utf-8"), re.MULTILINE)
    assert gap is not None
    templates = Path(get_template("base.html").origin.name).parent.rglob("*.html")  # type: ignore[attr-defined]
    asked = [
        int(ms) for page in templates for ms in re.findall(r'data-live-every="(\d+)"', page.read_text(encoding="utf-8"))
    ]
    assert asked and max(1000 * hub.INTERVAL + int(gap[1]), *asked) <= 750
