"""What hides a module, and what only shares a name with one: folders, packages and other languages do not."""

from __future__ import annotations

import pytest

from tests.sandbox.grading.audit.make import attempt, change, found


@pytest.mark.parametrize(
    "path",
    [
        "packaging/product.spec",
        "packaging/rules.py",
        "site/index.html",
        "site/build.py",
        "src/json/x.cpp",
        "src/json/parse.py",
        "src/types/user.ts",
        "src/queue/worker.go",
        "product/json.py",
        "product/types/__init__.py",
    ],
)
def test_honest_paths_are_left_alone(path: str) -> None:
    assert found(attempt(left=[change(path, "value = 1\n")])) == {}


@pytest.mark.parametrize("path", ["json.py", "site.py", "src/json/__init__.py", "src/site.py", "packaging.py"])
def test_the_same_names_are_found_where_they_hide_a_module(path: str) -> None:
    assert "shadow-module" in found(attempt(left=[change(path, "value = 1\n")]))
