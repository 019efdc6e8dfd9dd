"""Names have one spelling, versions one order, and a request's target either means one thing or is refused."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from sandbox.network.names import BadName, go_module, go_unescape, npm_name, python_name
from sandbox.network.paths import GoQuery, NpmDocument, NpmFile, PythonFile, PythonPage, parse
from sandbox.network.policy import Denied, Rule
from sandbox.network.semver import BadVersion, precedence

WORDS = st.lists(st.text(string.ascii_letters + string.digits, min_size=1, max_size=8), min_size=1, max_size=5)
SEPARATORS = st.sampled_from(["-", "_", ".", "--", "-_.", ".-"])


@given(WORDS, SEPARATORS, SEPARATORS)
def test_a_python_name_has_one_spelling(words: list[str], one: str, other: str) -> None:
    normal = python_name(one.join(words))
    assert normal == python_name(other.join(words)) == python_name(one.join(words).upper()) == python_name(normal)
    assert normal == "-".join(words).lower()


@given(st.text(max_size=40))
def test_a_name_is_normal_or_refused(text: str) -> None:
    for normalise in (python_name, npm_name, go_module):
        try:
            normal = normalise(text)
        except BadName:
            continue
        assert normalise(normal) == normal and normal == normal.lower() and normal.isascii()
        assert ".." not in normal.split("/") and not normal.startswith(("/", "-")) and "\\" not in normal


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("example.org/Mod", "example.org/mod"),
        ("example.org/mod/v2", "example.org/mod"),
        ("example.org/mod/v12", "example.org/mod"),
        ("example.org/mod/v1", "example.org/mod/v1"),
        ("gopkg.in/yaml.v3", "gopkg.in/yaml"),
        ("example.org/mod/v2/v3", "example.org/mod"),
        ("example.org", "example.org"),
    ],
)
def test_go_modules_lose_their_major_version(path: str, normal: str) -> None:
    assert go_module(path) == normal


@given(st.text(string.ascii_letters + string.digits + "./-", max_size=30))
def test_go_escaping_goes_both_ways(path: str) -> None:
    escaped = "".join(f"!{letter.lower()}" if letter.isupper() else letter for letter in path)
    assert go_unescape(escaped) == path


ORDER = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
]


def test_semantic_versions_are_in_the_order_of_the_standard() -> None:
    versions = ["0.9.9", *ORDER, "1.0.0", "1.0.1", "1.10.0", "2.0.0-0", "2.0.0"]
    mixed = [*versions[::2], *versions[1::2]]
    assert sorted(mixed, key=precedence) == versions != mixed
    assert precedence("1.2.3+linux") == precedence("1.2.3+other")


@given(st.tuples(*[st.integers(0, 10**12)] * 3), st.tuples(*[st.integers(0, 10**12)] * 3))
def test_semantic_release_versions_compare_as_numbers(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    first, second = (".".join(map(str, parts)) for parts in (one, other))
    assert (precedence(first) < precedence(second)) == (one < other) == (Version(first) < Version(second))


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "01.2.3", "v1.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3 ", "1.2.3-\u0661", "1.2.x"]
)
def test_what_is_no_semantic_version(text: str) -> None:
    with pytest.raises(BadVersion):
        precedence(text)


@pytest.mark.parametrize(
    ("target", "means"),
    [
        ("/simple/Foo_Bar/", PythonPage("foo-bar")),
        ("/simple/foo", PythonPage("foo")),
        ("/files/foo/foo-1%2Bcpu-py3-none-any.whl", PythonFile("foo", "foo-1+cpu-py3-none-any.whl", False)),
        ("/files/foo/foo-1.tar.gz.metadata", PythonFile("foo", "foo-1.tar.gz", True)),
        ("/npm/@scope%2fpkg", NpmDocument("@scope/pkg")),
        ("/npm/@Scope/pkg", NpmDocument("@scope/pkg")),
        ("/npm/@scope/pkg/-/pkg-1.0.0.tgz", NpmFile("@scope/pkg", "pkg-1.0.0.tgz")),
        (
            "/go/example.org/!mod/v2/@v/v2.0.0+incompatible.info",
            GoQuery("example.org/Mod/v2", "info", "v2.0.0+incompatible"),
        ),
        ("/go/example.org/mod/@v/list", GoQuery("example.org/mod", "list")),
        ("/go/example.org/mod/@latest", GoQuery("example.org/mod", "latest")),
    ],
)
def test_what_a_target_means(target: str, means: object) -> None:
    assert parse(target) == means


@pytest.mark.parametrize(
    "target",
    [
        "",
        "/",
        "*",
        "/simple/",
        "/simple",
        "simple/foo/",
        "http://example.org/simple/foo/",
        "//example.org/simple/foo/",
        "/simple/foo/../bar/",
        "/simple/foo/%2e%2e/bar/",
        "/simple/%252e%252e/",
        "/simple/foo%00/",
        "/simple/foo%0d%0aX-A:b/",
        "/simple/f%C3%A9/",
        "/simple/foo/bar/",
        "/simple/foo/?x=1",
        "/simple/foo;x/",
        "/files/foo/",
        "/files/foo",
        "/files/foo/a/b",
        "/files/foo/..%2f..%2fetc%2fpasswd",
        "/files/foo/.hidden",
        "/files/foo/\\a",
        "/npm/",
        "/npm/@scope/",
        "/npm/@scope%2f..%2fpkg",
        "/npm/-/v1/security/audits",
        "/npm/pkg/latest/more",
        "/npm/pkg/-/a/b.tgz",
        "/go/mod/@v/list",
        "/go/example.org/mod",
        "/go/example.org/Mod/@v/list",
        "/go/example.org/mod/@v/v1.0.0",
        "/go/example.org/mod/@v/v1.0.0.exe",
        "/go/sumdb/example.org/latest",
        "/go/example.org/../x/@v/list",
        "/other/foo",
        "/simple/" + "a" * 3000,
    ],
)
def test_what_is_refused(target: str) -> None:
    with pytest.raises(Denied) as refused:
        parse(target)
    assert refused.value.rule == Rule.REQUEST and str(refused.value).startswith("denied by the task's network policy: ")


@given(st.one_of(st.text(max_size=60), st.text("/simplefgon%2.e@v-!_~A09", max_size=60).map(lambda text: "/" + text)))
def test_any_target_means_something_plain_or_is_refused(target: str) -> None:
    try:
        means = parse(target)
    except Denied:
        return
    for value in (getattr(means, field) for field in means.__slots__):
        if isinstance(value, str):
            assert value.isascii() and value.isprintable() and not set(value) & set("%\\?#: ")
            assert not {"", ".", ".."} & set(value.split("/")) or value == ""


@given(WORDS, st.text(string.ascii_letters + string.digits + "._+-", max_size=20), st.booleans())
def test_the_proxys_own_file_addresses_are_understood(words: list[str], tail: str, metadata: bool) -> None:
    from urllib.parse import quote

    name, filename = "_".join(words), f"a{tail}.whl"
    target = f"/files/{name}/{quote(filename)}" + (".metadata" if metadata else "")
    assert parse(target) == PythonFile("-".join(words).lower(), filename, metadata)
