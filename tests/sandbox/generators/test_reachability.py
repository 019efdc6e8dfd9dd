"""Which files a test speaks of, which functions suit which work, and edits by place: over texts, nothing is run."""

import ast
import random
from types import SimpleNamespace

import pytest

from sandbox.generators.analysis.excision import without, without_users
from sandbox.generators.analysis.package import Package
from sandbox.generators.analysis.reachability import Reachability
from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.drafts import Rejected
from sandbox.generators.deletion.deletion import removal
from sandbox.generators.deletion.features import find_features
from sandbox.generators.refactoring.moving import move
from sandbox.generators.refactoring.renaming import rename, renamed

PRODUCT = {
    "src/mill/__init__.py": '"""A mill."""\nfrom .front import *\nfrom .wheel import turn as spin\n',
    "src/mill/front.py": '''"""The front."""
import re
import shutil
from typing import TYPE_CHECKING

from . import wheel

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 3
__all__ = ["Door", "grind"]


def _words(text):
    return re.split(r"\\s+", text)


def grind(grain: "Iterable", count=LIMIT):
    """Grind, `count` turns."""
    return [_words(one)[:count] + [wheel.turn(1)] for one in grain]


class Door:
    """A door."""

    def open(self):
        """Open it."""
        return self._bolt()

    def _bolt(self):
        return shutil.which("bolt")

    def shut(self):
        """Shut it."""
        return False
''',
    "src/mill/wheel.py": '"""The wheel."""\n\n\ndef turn(by):\n    """Turn it."""\n    return by + 1\n',
}
TESTS = {
    "tests/conftest.py": "import pytest\nfrom mill import Door\n\n\n@pytest.fixture\ndef door():\n    return Door()\n",
    "tests/helper.py": "from mill.wheel import turn\n\n\ndef twice():\n    return turn(turn(0))\n",
    "tests/test_mill.py": """import mill
from mill import grind, spin
from tests.helper import twice


def made():
    return grind(["a b"])


class TestAll:
    start = spin

    def test_spin(self):
        assert self.start(1) == 2


def test_grind():
    assert made() == [["a", "b", 2]]


def test_module():
    assert mill.wheel.turn(2) == 3


def test_twice():
    assert twice() == 2


def test_door(door):
    assert door.open() is None


def test_shut(door):
    assert not door.shut()
""",
}
IDS = [f"tests/test_mill.py::{name}" for name in (
    "TestAll::test_spin", "test_door", "test_grind", "test_module", "test_shut", "test_twice")]  # fmt: skip


@pytest.fixture
def package():
    texts = {**PRODUCT, **TESTS}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    return Package(dict(PRODUCT), dict(TESTS), {"README.md": "# mill\n\n`Door.open()` opens\n"}, trees, ("src",))


def line(path, name):
    tree = ast.parse(PRODUCT[path])
    return next(n.lineno for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)


@pytest.fixture
def builder():
    covered = {
        ("src/mill/front.py", "grind"): (IDS[2],), ("src/mill/front.py", "open"): (IDS[1],),
        ("src/mill/front.py", "shut"): (IDS[4],), ("src/mill/wheel.py", "turn"): (IDS[0], IDS[2], IDS[3], IDS[5]),
    }  # fmt: skip
    built = SimpleNamespace(
        name="mill", tests=dict.fromkeys(IDS, 0.01), source_roots=("src",),
        covered={f"{path}:{line(path, name)}": ids for (path, name), ids in covered.items()},
    )  # fmt: skip
    return SimpleNamespace(built=built)


def target(builder, path, name):
    at = line(path, name.rpartition(".")[2])
    return Target(path, name, at, builder.built.covered[f"{path}:{at}"])


def test_names_lead_to_files_through_imports_stars_fixtures_and_helpers(package):
    reach = Reachability(package)
    front, wheel = "src/mill/front.py", "src/mill/wheel.py"
    spoken = {one: reach.spoken("tests/test_mill.py", tuple(one.split("::")[1:])) for one in IDS}
    assert spoken[IDS[0]] == {wheel}, "a re-export under another name, by the class of the test"
    assert spoken[IDS[1]] == {front}, "a fixture of conftest.py"
    assert spoken[IDS[2]] == {front}, "a star, by a function beside the test"
    assert spoken[IDS[3]] == {wheel}, "an attribute of the package"
    assert spoken[IDS[5]] == {wheel}, "a helper among the tests"
    assert reach.spoken("tests/test_mill.py", ("test_none",)) == frozenset()


def test_a_test_is_distant_where_it_reaches_a_function_by_another_file_only(package, builder):
    assert Reachability(package).distant(target(builder, "src/mill/wheel.py", "turn")) == (IDS[2],)
    assert Reachability(package).distant(target(builder, "src/mill/front.py", "grind")) == ()


def test_what_most_tests_name_leads_nowhere():
    """Everything goes in by one gate: a test of a part names the gate as well, and a bug behind the gate is far from it."""
    product = {
        "gate.py": "class Gate:\n    def go(self, part):\n        return _checked(part)\n\n\ndef _checked(part):\n"
        "    return part()\n",
        "wings.py": "def wing():\n    return 1\n",
        "tails.py": "def tail():\n    return 2\n",
    }
    text = "from gate import Gate\nfrom tails import tail\nfrom wings import wing\n" + "".join(
        f"\n\ndef test_{name}():\n    assert {said}\n"
        for name, said in (
            ("wing", "Gate().go(wing) == 1"),
            ("tail", "Gate().go(tail)"),
            ("gate", "Gate()"),
            ("part", "wing()"),
        )
    )
    trees = {path: ast.parse(source) for path, source in {**product, "test_all.py": text}.items()}
    package = Package(product, {"test_all.py": text}, {}, trees, (".",))
    ids = tuple(f"test_all.py::test_{name}" for name in ("wing", "tail", "gate"))
    reach = Reachability(package, [*ids, "test_all.py::test_part"])
    assert reach.distant(Target("gate.py", "_checked", 6, ids)) == ids[:2], "a test of the gate alone looks at the gate"
    assert reach.distant(Target("gate.py", "Gate.go", 2, ids)) == (), "it is named"
    assert reach.distant(Target("wings.py", "wing", 1, ids[:1])) == ()
    assert Reachability(package).distant(Target("gate.py", "_checked", 6, ids)) == ()


def test_methods_are_features_with_the_helpers_that_only_they_need(package, builder):
    found = {feature.name: feature for feature in find_features(builder, package)}
    assert found.keys() == {"grind", "Door", "Door.open", "Door.shut"}, "another file of the package turns the wheel"
    assert found["Door.open"].removed == {"Door.open", "Door._bolt"} and found["Door.open"].tests == (IDS[1],)
    assert found["grind"].removed == {"grind", "_words"} and "def open(self)" in found["Door"].description


def test_a_feature_goes_with_its_imports_helpers_tests_and_documentation(package, builder):
    feature = next(one for one in find_features(builder, package) if one.name == "Door.open")
    made = removal(builder, package, feature)
    assert not isinstance(made, Rejected)
    front, tests = made.draft.broken["src/mill/front.py"], made.draft.visible_tests["tests/test_mill.py"]
    assert "def open" not in front and "_bolt" not in front and "shutil" not in front and "def shut" in front
    assert "import re\n" in front, "what others still need stays"
    assert "test_door" not in tests and "def test_shut(door)" in tests
    assert "Door.open" not in made.draft.broken["README.md"] and list(made.draft.gold) == ["src/mill/front.py"]
    assert set(made.rest) == set(IDS) - {IDS[1]} and made.draft.operator == "method"


def test_what_only_a_statement_of_the_file_uses_goes_with_its_readers():
    text = (
        "from m import f as g, h\n\nCASES = [g(1)]\n\n\nclass TestA:\n    start = g\n\n    def test_a(self):\n        h()\n\n\n"
        "def test_b():\n    assert CASES\n\n\ndef test_c():\n    assert h(1)\n"
    )
    left = without_users(text, "f")
    assert "CASES" not in left and "g" not in {n.id for n in ast.walk(ast.parse(left)) if isinstance(n, ast.Name)}
    assert "from m import h" in left and "def test_a" in left and "def test_c" in left and "def test_b" not in left


def test_cuts_keep_blocks_whole_and_refuse_shared_lines():
    text = "try:\n    from m import (\n        a,  # one\n        b,\n    )\nexcept ImportError:\n    import c\n__all__ = ['a']\n"
    left = without(text, (), {"a", "c"})
    assert (
        "b,\n" in left and "# one" not in left and "except ImportError:\n    pass\n" in left and "__all__ = []" in left
    )
    with pytest.raises(SyntaxError, match="several statements"):
        without("x = 1; import c\n", (), {"c"})


def test_a_public_function_is_renamed_in_its_tests_as_well(package, builder):
    place = target(builder, "src/mill/wheel.py", "turn")
    node = package.trees["src/mill/wheel.py"].body[1]
    work = rename(builder, package, place, node, random.Random(0))
    assert work is not None and work.gold.keys() == PRODUCT.keys() and work.facts["uses"] == 1
    new = work.facts["new"]
    assert f"import {new} as spin" in work.gold["src/mill/__init__.py"]
    assert f"wheel.{new}(1)" in work.gold["src/mill/front.py"] and "`count` turns" in work.gold["src/mill/front.py"]
    assert f"mill.wheel.{new}(2)" in work.rewritten["tests/test_mill.py"] and "tests" in work.terms
    assert work.fail_to_pass == (
        "test_the_new_name_is_defined_with_the_same_parameters",
        "test_the_old_name_is_gone",
        "test_the_new_name_is_used_where_the_old_one_was",
        "test_each_user_of_the_old_name_uses_the_new_one",
    )
    (user,) = work.facts["users"]
    assert user.startswith("src/mill/front.py:")


def test_names_in_strings_are_renamed_where_they_are_the_function():
    text = (
        "from m import f\nimport m\n\n\ndef g(x):\n    '''Like f.\n\n    >>> f(1)\n    '''\n    x.f()\n"
        "    return m.f, 'm.f', 'f', 'of f', f'{1}'\n"
    )
    said = renamed(text, ast.parse(text), "f", "new")
    assert said is not None
    assert "from m import new" in said and "Like f." in said and ">>> new(1)" in said and "x.f()" in said
    assert "return m.new, 'm.new', 'new', 'of f', f'{1}'" in said


def test_a_function_moves_with_private_things_that_it_shares(package, builder):
    place = target(builder, "src/mill/front.py", "grind")
    node = next(n for n in package.trees["src/mill/front.py"].body if getattr(n, "name", "") == "grind")
    work = move(builder, package, place, node, random.Random(0))
    assert work is not None
    to = work.facts["to"]
    assert "LIMIT = 3" in work.gold[to] and "def _words" in work.gold[to] and "from . import wheel" in work.gold[to]
    assert "if TYPE_CHECKING:\n    from collections.abc import Iterable" not in work.gold[to], "nothing reads it there"
    rest = work.gold["src/mill/front.py"]
    assert "LIMIT = 3" not in rest and "def _words" not in rest and "import grind" in rest
    ast.parse(rest), ast.parse(work.gold[to])
