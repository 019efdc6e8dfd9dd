# A hidden check of examples in a docstring: they run as they say, and fail where the code is wrong. Its constants stand
# above.
# mypy: ignore-errors
# pragma: public literals
import doctest
import importlib
import types


def examples():
    module = importlib.import_module(MODULE)  # noqa: F821
    text = getattr(module, NAME).__doc__ or ""  # noqa: F821
    return doctest.DocTestParser().get_examples(text)


def failures(namespace):
    """How many examples do not give what they say."""
    name = NAME  # noqa: F821
    test = doctest.DocTest(examples(), dict(namespace), name, None, None, None)
    return doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None).failed


def test_there_are_examples_of_the_function():
    shown = [one for one in examples() if NAME in one.source and one.want]  # noqa: F821
    assert len(shown) >= MIN_EXAMPLES  # noqa: F821


def test_the_examples_are_right():
    assert examples()
    assert failures(vars(importlib.import_module(MODULE))) == 0  # noqa: F821


def refused(text):
    """Whether the examples fail over another text of the module."""
    module = importlib.import_module(MODULE)  # noqa: F821
    twin = types.ModuleType(module.__name__)
    twin.__dict__.update(__package__=module.__package__, __file__=module.__file__)
    exec(compile(text, module.__file__, "exec"), twin.__dict__)  # noqa: S102
    return failures(vars(twin)) > 0


def test_the_examples_tell_right_from_wrong():
    assert [refused(text) for text in VARIANTS] == REFUSED  # noqa: F821
