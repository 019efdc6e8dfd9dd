"""What project files and error messages say, read without running anything."""

import sys
import types

import pytest

from sandbox.backends.base import EndReason, ExecResult
from sandbox.install.installer import recipe_of
from sandbox.install.recipes import diagnosis
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.goals import Expect, Goal, draw, judge
from sandbox.install.recipes.python import building, goals, project, requirements, setup, suite
from sandbox.install.recipes.python.repair import build_bounds, era_constraints, missing, outgrown
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile


def of(files: dict[str, str]) -> Checkout:
    return Checkout("shop", "1.0", {path: TreeFile(text.encode()) for path, text in files.items()})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[dependency-groups]\ntests = ["pytest>=3", "mock", {include-group = "more"}]\nmore = ["six"]\n'},
         ["pytest", "mock", "six"]),
        ({"tox.ini": "[testenv]\ndeps =\n    pytest\n    py36: numpy<1\n    -r requirements-test.txt\n",
          "requirements-test.txt": "mock # x\n"},
         ["mock", "pytest", "numpy<1"]),
        ({"setup.py": "NEEDS = ['a>=1']\n"
          "setup(tests_require=NEEDS + ['b'], extras_require={'test': ['c'], 'docs': ['d']})"},
         ["a>=1", "b", "c"]),
        ({"setup.cfg": "[options.extras_require]\ntesting =\n    pytest-cov\n    mock\n"}, ["mock"]),
        ({"pyproject.toml": '[tool.poetry.group.test.dependencies]\nmock = "^2.0"\n'
          'black = "*"\nx = {version = "1.0", extras = ["y"]}\n'},
         ["mock>=2.0", "x[y]==1.0"]),
        ({"noxfile.py": "def tests(session):\n    session.install('-U', 'mock', '.[x]', '-c', 'bounds.txt', 'ruff')\n"
          "def docs(session):\n    session.install('sphinx-x')\n"},
         ["mock"]),
        ({"requirements/dev.txt": "-r test.txt\nruff\n", "requirements/test.txt": "mock\n-e .\nhttps://host/x.whl\n"}, ["mock"]),
    ],
)  # fmt: skip
def test_what_tests_need_is_read_from_wherever_it_is_said(files, expected):
    assert requirements.test_requirements(of(files)) == expected


def test_modules_tests_and_set_up():
    found = of(
        {
            "src/shop/__init__.py": "", "src/shop/till.py": "", "setup.py": "", "tests/conftest.py": "",
            "docs/test_docs.py": "def test_a(): 1",
            "tests/unit/test_till.py": "def test_a():\n    pass\n", "tox.ini": "[pytest]\naddopts = --cov\npythonpath = lib\n",
        }
    )  # fmt: skip
    where = project.layout(found)
    assert (where.roots, where.modules[0], where.inner) == (("src",), "shop", ("shop.till",))
    more = {"src/shop/nt.py": "import ctypes\nx = ctypes.windll.k\n", "src/shop/old.py": "print 'x'\n",
            "src/shop/web.py": "import flask\n", "src/shop/fine.py": "import json\nfrom shop import till\n"}  # fmt: skip
    texts = {path: file.content.decode() for path, file in found.files.items()}
    assert project.layout(of(texts | more)).inner == ("shop.fine", "shop.till")
    assert project.test_paths(found) == ("tests",)
    assert goals.configuration(found, where.roots) == (
        "-c", "tox.ini", "--import-mode=prepend", "--continue-on-collection-errors", "-o", "addopts=",
        "-o", "pythonpath=lib . src",
    )  # fmt: skip
    assert project.test_paths(of({"shop.py": ""})) == ()


def test_examples_are_the_tests_of_a_checkout_without_others():
    """Each docstring's as a test of its own, in a file that stays what it is when the code beside it changes."""
    files = {
        "shop.py": '"""Sells.\n\n>>> 1 + 1\n2\n"""\nclass Till:\n    def add(self):\n        """Adds.\n\n'
        '        >>> "a\\tb"\n        1\n        """\n',
        "tools/x.py": '""">>> 1\n1\n"""\n', "setup.py": "", "README.md": "Sells.\n```\n>>> 3\n3\n```\nmore\n",
    }  # fmt: skip
    assert project.test_paths(of(files)) == ("tests/examples",)
    made = project.example_files(of(files))
    assert sorted(made) == ["tests/examples/test_examples_readme_md.py", "tests/examples/test_examples_shop.py"]
    outcomes: dict[str, bool] = {}
    sys.modules["shop"] = types.ModuleType("shop")
    try:
        for text in made.values():
            names: dict[str, object] = {}
            exec(text, names)  # what pytest would do with it
            for name in (n for n in names if n.startswith("test_")):
                try:
                    names[name]()  # type: ignore[operator]
                    outcomes[name] = True
                except AssertionError:
                    outcomes[name] = False
    finally:
        del sys.modules["shop"]
    assert outcomes == {"test_0_readme": True, "test_0_module": True, "test_1_Till_add": False}
    files["test_shop.py"] = "def test_a(): pass\n"
    assert project.test_paths(of(files)) == ("test_shop.py",) and not project.example_files(of(files))


def test_files_that_pytest_would_not_see_are_named_to_it():
    """Where no test file has a usual name: in the goals as well, which are written before anything is installed."""
    odd = {"shop.py": "", "tests/checks.py": "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n"}
    assert "python_files=checks.py" in goals.configuration(of(odd), (".",))
    commands = [goal.command for goal in goals.goals(of(odd)) if goal.kind == "tests"]
    assert [command.split()[-1] for command in commands] == ["tests", "tests/checks.py"]
    assert all("-c /dev/null --rootdir=." in command and "python_files=checks.py" in command for command in commands)
    usual = odd | {"tests/test_shop.py": "def test_a(): pass\n"}
    assert not any("python_files" in word for word in goals.configuration(of(usual), (".",)))
    # A sample that only looks like a test file is nobody's goal.
    assert not any("checks.py" in goal.command for goal in goals.goals(of(usual)))


def test_of_addopts_that_is_kept_which_says_what_tests_there_are():
    text = "[pytest]\naddopts = --cov=shop -n 4 -m 'not online' --ignore=tests/slow --asyncio-mode=auto -p no:doctest\n"
    found = goals.configuration(of({"shop.py": "", "tox.ini": text}), (".",))
    kept = found[2 : found.index("--continue-on-collection-errors")]
    assert kept == ("--import-mode=prepend", "-m", "not online", "--ignore=tests/slow", "-o", "asyncio_mode=auto")
    listed = "[tool.pytest.ini_options]\naddopts = ['-ra', '-m', 'not online', '-k=a b']\ntestpaths = ['a', 'b']\n"
    assert "not online" in goals.configuration(of({"shop.py": "", "pyproject.toml": listed}), (".",))
    assert setup.options(of({"pyproject.toml": listed}))["testpaths"] == "a b"


def test_a_file_that_the_projects_options_may_leave_out_is_nobodys_goal():
    tests = "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n"
    files = {
        "shop.py": "", "tests/test_shop.py": tests, "tests/test_net.py": "@pytest.mark.online\n" + tests,
        "tests/slow/test_long.py": tests, "tests/more/test_far.py": tests, "tests/more/conftest.py": "add_marker('online')\n",
        "tox.ini": "[pytest]\naddopts = -m 'not online' --ignore=tests/slow\n",
    }  # fmt: skip
    found = [goal.command.split()[-1] for goal in goals.goals(of(files)) if goal.kind == "tests"]
    assert found == ["tests", "tests/test_shop.py"]


def test_variables_of_tests_without_secrets_and_without_the_machines_own():
    files = {
        "tox.ini": "[testenv]\nsetenv =\n    SHOP_MODE = test\n    ROOT={toxinidir}/x\n"
        "    PATH=/evil\n    A_TOKEN=1\n    B={env:B}\n",
        "manage.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n", "shop/settings.py": "",
    }  # fmt: skip
    found = {"SHOP_MODE": "test", "ROOT": "/home/dev/repo/x", "DJANGO_SETTINGS_MODULE": "shop.settings"}
    assert setup.variables(of(files)) == found
    del files["shop/settings.py"]
    assert "DJANGO_SETTINGS_MODULE" not in setup.variables(of(files))


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[tool.maturin]\nmodule-name = 'till.inner'\n"},
        {"Cargo.toml": "[lib]\nname = 'till'\n", "src/lib.rs": ""},
        {"pyproject.toml": "[tool.setuptools]\npy-modules = ['till']\n"},
    ],
)
def test_the_name_of_a_module_that_only_building_makes(files):
    assert project.layout(of(files)).modules == ("till",)


def test_strewn_tests_are_found_by_the_folders_that_hold_them():
    many = {f"shop/part_{n:03}/test_part.py": "def test_a(): pass\n" for n in range(100)}
    assert project.test_paths(of(many | {"shop/__init__.py": ""})) == ("shop",)


def test_a_plugin_of_pytest_is_there_in_the_runs_that_its_own_tests_begin():
    plugins = [
        ["mock", "mock", "mock.plugin"],
        ["pytest-cov", "pytest_cov", "pytest_cov.plugin"],
        ["shop", "s", "shop.p"],
    ]
    facts = {"plugins": plugins, "hypothesis_ci": False}
    assert suite.plugins_to_load(facts, "other") == ("-p", "mock", "-p", "s")
    assert suite.plugins_to_load(facts, "shop") == () and suite.plugin_modules(facts) == "mock.plugin,shop.p"


def test_what_later_releases_no_longer_have():
    gone = "ImportError: cannot import name 'soft' from 'marks' (/home/dev/.venv/lib/python3.11/site-packages/marks/__init__.py)"
    texts = [gone, "AttributeError: module 'shop' has no attribute 'x'", "No module named 'werk.contrib'",
             "AttributeError: module 'inspect' has no attribute 'getargspec'",
             "cannot import name 'x' from 'own' (/home/dev/repo/own.py)"]  # fmt: skip
    assert outgrown(texts, ("shop",)) == ["marks", "werk"]


@pytest.mark.parametrize(
    ("said", "bound"),
    [
        ("error in shop setup command: use_2to3 is invalid.", "setuptools<58"),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "setuptools<81"),
        ("ModuleNotFoundError: No module named 'setuptools.command.test'", "setuptools<72"),
    ],
)
def test_bounds_on_build_tools_by_the_words_of_the_failure(said, bound):
    assert bound in build_bounds(said)
    assert build_bounds("gcc: error: strange") == []


def test_ten_goals_of_which_three_are_shown_the_same_each_time():
    found = of({"shop.py": "", "test_shop.py": "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n"})
    first, second = (draw(goals.goals(found), seed=found.digest) for _ in range(2))
    assert first == second and (len(first.seen), len(first.unseen)) == (3, 7)
    assert any(goal.kind == "tests" for goal in first.seen)
    assert any(goal.kind == "suite" for goal in first.unseen)


@pytest.mark.parametrize(
    ("output", "code", "why"),
    [
        (b"3 passed, 1 failed in 1s", 1, ""), (b"1 passed, 3 failed in 1s", 1, "1 tests passed, 3 did not"),
        (b"no tests ran", 5, "ended with 5"),
        (b"PASSED", 0, "0 tests passed"), (b"2 passed, 1 error", 0, "2 tests passed, 1 did"),
    ],
)  # fmt: skip
def test_a_goal_is_judged_by_the_last_summary(output, code, why):
    goal = Goal(
        kind="tests", command="pytest", description="most pass", expect=Expect(exit_codes=(0, 1), passed_share=0.7)
    )
    said = judge(goal, ExecResult(code, EndReason.EXIT, output, len(output), 0.1, 0))
    assert (said == "") if not why else (why in said)


def test_what_the_words_of_errors_ask_for():
    texts = ["ModuleNotFoundError: No module named 'yaml'", "No module named 'shop.gone'", "E  fixture 'mocker' not found",
             "AttributeError: module 'py' has no attribute 'test'", "module 'shop' has no attribute 'x'",
             "ModuleNotFoundError: No module named 'tests.help'", "No module named 'pkg_resources'"]  # fmt: skip
    assert missing(texts, ("shop",)) == ["pyyaml", "pytest-mock", "py", "setuptools<81"]
    made_up = ["No module named 'blah'", "site-packages/mock/x.py: No module named 'funcs'", "No module named 'really'"]
    names = project.imported(
        of({"a.py": "try:\n    import really.inner as x, os\nexcept E: pass\nfrom .blah import y\n"})
    )
    assert missing(made_up, ("shop",), names) == ["funcs", "really"]
    assert "numpy<2" in era_constraints(2019) and not era_constraints(None)
    assert era_constraints(2021) != era_constraints(2024)


@pytest.mark.parametrize(
    ("text", "package", "reason"),
    [
        ("x.c:3:10: fatal error: libpq-fe.h: No such file or directory", "libpq-dev", Reason.SYSTEM_PACKAGE),
        ("error: command 'gfortran' failed: No such file", "gfortran", Reason.SYSTEM_PACKAGE),
        ("No solution found when resolving dependencies", "", Reason.DEPENDENCY),
        ("strange", "", Reason.INSTALL),
        ("EOFError: EOF when reading a line", "", Reason.INTERACTIVE),
        ("go: errors parsing go.mod:\ngo.mod:3: invalid go version '1.22.0'", "", Reason.LANGUAGE_VERSION),
    ],
)
def test_reasons_of_failed_builds(text, package, reason):
    assert (diagnosis.system_package(text), diagnosis.of_build(text)) == (package, reason)


def test_a_missing_system_package_comes_with_the_command():
    assert diagnosis.remedy("libpq-dev").endswith("on this machine: apt-get install -y libpq-dev")
    assert "apt-file search" in diagnosis.remedy(diagnosis.system_package("fatal error: odd/thing.h: No such file"))
    assert diagnosis.remedy("") == ""


def test_a_compiler_of_another_version_is_not_the_end():
    """The Python suits: the next attempts may do without the compiler."""
    said = b"error: lock file version 4 requires `-Znext-lockfile-bump`"
    result = ExecResult(1, EndReason.EXIT, said, len(said), 0.1, 0)
    found = building.failure(result, "building it failed", Reason.NATIVE_BUILD)
    assert found.reason is Reason.NATIVE_BUILD and "lock file version" in str(found)


def test_reasons_of_failed_tests_are_those_of_most():
    refused, unknown = "ConnectionRefusedError: 127.0.0.1:5432 refused", "Name or service not known"
    assert diagnosis.of_tests([refused, refused, "assert 1 == 2"]) == Reason.SERVICE
    assert diagnosis.of_tests([unknown, "assert 1 == 2", "assert 2 == 3"]) == Reason.FAILING_TESTS


def test_a_checkout_without_a_recipe():
    with pytest.raises(InstallFailed, match="Known are go, cargo, npm, python") as error:
        recipe_of(of({"README": "x", "Gemfile": ""}))
    assert error.value.reason == Reason.NO_RECIPE
