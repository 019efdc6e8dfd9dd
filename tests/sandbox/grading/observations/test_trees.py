"""Copies and walks of syntax trees are those of the standard library."""

from __future__ import annotations

import ast
import copy
import inspect
from types import ModuleType

import pytest

from sandbox.grading.observations.python_tests.trees import cloned, walk


@pytest.mark.parametrize("module", [ast, copy, inspect])
def test_a_walk_visits_what_ast_walk_does_in_its_order(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    assert list(walk(tree)) == list(ast.walk(tree))


@pytest.mark.parametrize("module", [ast, copy, inspect])
def test_a_clone_is_equal_and_shares_nothing_that_can_be_changed(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    made = cloned(tree)
    assert ast.dump(made, include_attributes=True) == ast.dump(tree, include_attributes=True)
    assert not {id(node) for node in ast.walk(made) if node._fields} & {id(node) for node in ast.walk(tree)}
    lists = {id(value) for node in ast.walk(tree) for value in vars(node).values() if isinstance(value, list)}
    assert not any(id(v) in lists for node in ast.walk(made) for v in vars(node).values() if isinstance(v, list))
