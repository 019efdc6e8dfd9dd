# A hidden check of a docstring's examples: they run as they say, and show a difference where the code is wrong. FACTS stands
# above.
# mypy: ignore-errors
import doctest
import importlib
import types

import pytest


def examples():
    module = importlib.import_module(FACTS["module"])  # noqa: F821
    text = getattr(module, FACTS["name"]).__doc__ or ""  # noqa: F821
    return doctest.DocTestParser().get_examples(text)


def failures(namespace):
    """How many examples do not give what they say."""
    name = FACTS["name"]  # noqa: F821
    test = doctest.DocTest(examples(), dict(namespace), name, None, None, None)
    return doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None).failed


def test_there_are_examples_of_the_function():
    shown = [one for one in examples() if FACTS["name"] in one.source and one.want]  # noqa: F821
    assert len(shown) >= FACTS["least"]  # noqa: F821


def test_the_examples_are_right():
    assert examples()
    assert failures(vars(importlib.import_module(FACTS["module"]))) == 0  # noqa: F821


@pytest.mark.parametrize("number", range(len(FACTS["wrong"])))  # noqa: F821
def test_the_examples_tell_right_from_wrong(number):
    module = importlib.import_module(FACTS["module"])  # noqa: F821
    twin = types.ModuleType(module.__name__)
    twin.__dict__.update(__package__=module.__package__, __file__=module.__file__)
    exec(compile(FACTS["wrong"][number], module.__file__, "exec"), twin.__dict__)  # noqa: F821, S102
    assert failures(vars(twin)) > 0
