"""How many bits of expectations are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.observations.brace_tests.braces import TEXT
from sandbox.grading.observations.plan import Plan
from sandbox.grading.observations.reports.base import Expected, Leaf, Site
from sandbox.grading.verifiers.entropy import most_bits, shown_values, site_bits, task_entropy
from sandbox.tasks.entropy import MIN_ENTROPY, Guess, answer_bits, calls_entropy, text_bits, value_bits
from sandbox.tasks.spec import CallsVerifier, PytestVerifier

VERIFIER = PytestVerifier(
    test_files={"t.py": ""}, fail_to_pass=("t.py::test_a", "t.py::test_b"), pass_to_pass=("t.py::test_c",)
)
IDS = {name: name for name in (*VERIFIER.fail_to_pass, *VERIFIER.pass_to_pass)}
X = Leaf(observed=True, source="f(1)")


def site(number: int, condition: str, kind: str = "value") -> Site:
    return Site(number=number, path="t.py", test=("t",), condition=condition, leaves=(X,), kind=kind)


@pytest.mark.parametrize(
    ("condition", "kind", "low", "high"),
    [
        ("v0 == 47", "value", 6, 7),
        ("v0 == 'a long text'", "value", 20, 24),
        ("v0 is True", "value", 1, 1),
        ("v0", "value", 1, 1),
        ("v0 != 3", "value", 1, 1),
        ("v0 == [1, 2]", "value", 4, 7),
        ("v0 == approx(0.25)", "value", 8, 8),
        ("", "raises", 2, 2),
        ("no such", "raises", 2, 2),
        ("v0 == approx(0.25, abs=0.5)", "value", 1, 2),
        ("v0 == approx(40, abs=30)", "value", 0, 1),
        ("v0 == approx(40, 0.5)", "value", 1, 2),
        ("v0 == approx(40, abs=wide)", "value", 0, 0),
    ],
)
def test_an_expectation_has_the_bits_of_its_value(condition, kind, low, high):
    assert low <= site_bits(site(0, condition, kind), Expected(site=0)) <= high


def test_a_withheld_value_counts():
    assert site_bits(site(0, "v0 == v1"), Expected(site=0, values={1: {"i": "2f"}})) == value_bits(47)
    assert site_bits(site(0, "v0 == v1"), Expected(site=0)) == 0.0, "the work reports both sides"


def test_only_what_must_begin_to_hold_counts_and_each_demand_once():
    sites = (site(0, "v0 == 47"), site(1, "v0 == 48"), site(2, "v0 == 49"))
    expected = {
        "t.py::test_a": (Expected(site=0), Expected(site=0), Expected(site=1)),
        "t.py::test_c": (Expected(site=2),),
    }
    plan = Plan(files={}, ids=IDS, sites=sites, expected=expected)
    missed = {"t.py::test_a": {0}, "t.py::test_c": {2}}
    assert task_entropy(VERIFIER, plan, missed) == value_bits(47)
    assert task_entropy(VERIFIER, plan, {}) == 0.0


def test_one_guess_serves_all_assertions_that_ask_for_the_same():
    sites = (site(0, "v0"), site(1, "v0"), site(2, "v0 == 47"), site(3, "v0 == 47"))
    expected = {"t.py::test_a": tuple(Expected(site=number) for number in range(4))}
    plan = Plan(files={}, ids=IDS, sites=sites, expected=expected)
    assert task_entropy(VERIFIER, plan, {"t.py::test_a": {0, 1, 2, 3}}) == 1.0 + value_bits(47)


@pytest.mark.parametrize(
    ("sites", "bits"),
    [
        ([("v0 > 1", "value"), ("v0 > 7", "value"), ("v0 in v1", "value"), ("v0 != 3", "value")], 1.0),
        ([("", "raises"), ("", "raises")], 2.0),
        ([("no such", "raises"), ("too long", "raises")], 2.0 + 4.0),
        ([("v0 > 1", "value"), ("v0 == 47", "value"), ("v0 == 48", "value")], 1.0 + value_bits(47) + value_bits(48)),
        ([("v0 is True", "value"), ("v0 is False", "value")], 2.0),
    ],
    ids=[
        "infinity meets all",
        "a class of every type",
        "a message that says everything",
        "values add up",
        "both truths",
    ],
)
def test_demands_that_one_answer_meets_count_once(sites, bits):
    made = tuple(site(number, *one) for number, one in enumerate(sites))
    expected = {"t.py::test_a": tuple(Expected(site=number) for number in range(len(made)))}
    plan = Plan(files={}, ids=IDS, sites=made, expected=expected)
    assert task_entropy(VERIFIER, plan, {"t.py::test_a": set(range(len(made)))}) == pytest.approx(bits)


CONDITIONS = st.sampled_from(["v0 == 47", "v0 == 48", "v0", "v0 > 1", "v0 == 'a long text'", "v0 is True"])
SITES = st.lists(st.one_of(CONDITIONS.map(lambda text: (text, "value")), st.just(("no such", "raises"))), max_size=8)


@given(SITES, st.data())
def test_tests_never_ask_for_more_than_the_sum_of_what_each_may_ask_for(sites, data):
    made = tuple(site(number, *one) for number, one in enumerate(sites))
    expected = {name: tuple(Expected(site=one.number) for one in made if data.draw(st.booleans())) for name in IDS}
    plan = Plan(files={"t.py": "def test_a():\n    f(47)\n"}, ids=IDS, sites=made, expected=expected)
    missed = {name: {one.site for one in asked if data.draw(st.booleans())} for name, asked in expected.items()}
    most = most_bits(plan)
    assert most.keys() == IDS.keys()
    assert task_entropy(VERIFIER, plan, missed) <= sum(most[name] for name in VERIFIER.fail_to_pass) + 1e-9


def test_of_a_value_that_the_delivered_test_shows_only_the_choice_counts():
    """A round trip gives back its own input."""
    shown = shown_values("t.py", "def test_a():\n    _oc_see(0, lambda: decode(encode('a long text')))\n")
    assert site_bits(site(0, "v0 == 'a long text'"), Expected(site=0), shown) == 1.0
    assert site_bits(site(0, "v0 == 'another text'"), Expected(site=0), shown) > 20
    text = shown_values("t.js", "_oc(0, decode(encode('a long text')))")
    assert {"a long text", '"a long text"'} <= text


def test_the_least_is_more_than_a_truth():
    assert value_bits(True) < MIN_ENTROPY < value_bits("text")
    assert value_bits([True] * 8) == 2.0 < MIN_ENTROPY, "one guess, eight times"


@given(st.lists(st.sampled_from([True, 47, "text", (1, 2)]), max_size=12))
def test_a_collection_asks_for_its_different_items_and_their_arrangement(items):
    different = sum(value_bits(item) for item in set(items))
    assert min(24.0, 1.0 + different) - 1e-9 <= value_bits(items)
    assert value_bits(items) <= 1.0 + sum(value_bits(item) for item in items) + 1e-9


def calls(*answers: str) -> CallsVerifier:
    return CallsVerifier(module="m.py", function="f", cases=tuple((f"({n},)", text) for n, text in enumerate(answers)))


def test_hidden_calls_count_each_answer_once():
    verifier = calls("12", "12", "True", "'words'")
    assert calls_entropy(verifier, {0, 1}) == pytest.approx(value_bits(12) + 1.585, abs=0.001)
    assert calls_entropy(verifier, {0, 1, 2, 3}) == value_bits(12) + value_bits(True) + value_bits("words")
    assert calls_entropy(verifier, ()) == 0.0


def test_of_an_answer_among_the_arguments_only_the_choice_counts():
    verifier = CallsVerifier(module="m.py", function="f", cases=(("('a long text',)", "'a long text'"),))
    assert calls_entropy(verifier, {0}) == pytest.approx(1.585, abs=0.001)


@pytest.mark.parametrize(
    ("answers", "bits"),
    [
        (("True", "[True]", "[True, True]", "[True, True, True]"), 2.0),
        (("True", "[True]", "(True,)", "{'True': True}"), 1.0 + 1.0 + 1.0 + 1.0 + value_bits("True")),
        (("5", "[5]", "[5, 5]", "[[5], [5, 5]]"), value_bits(5) + 1.0 + 2.0),
        (("[1, 2]", "[2, 1]"), value_bits([1, 2]) + 2.0),
        (("[1, 2]", "[1, 2, 1, 2]"), value_bits([1, 2]) + 4.0),
        (("'aaaa'", "'aaaa'"), 3.0),
    ],
    ids=["one truth, repeated", "one truth, wrapped", "one number", "another order", "a longer order", "one text"],
)
def test_one_value_in_different_wrappings_is_one_guess(answers, bits):
    assert calls_entropy(calls(*answers), range(len(answers))) == pytest.approx(bits)


def test_wrappings_that_tests_ask_for_are_one_guess_too():
    conditions = ("v0 == [True]", "v0 == [True, True]", "v0 is True", "v0 == [True, True, True]")
    sites = tuple(site(number, condition) for number, condition in enumerate(conditions))
    expected = {"t.py::test_a": tuple(Expected(site=number) for number in range(4))}
    plan = Plan(files={}, ids=IDS, sites=sites, expected=expected)
    assert task_entropy(VERIFIER, plan, {"t.py::test_a": {0, 1, 2, 3}}) == 2.0 < MIN_ENTROPY


def test_texts_of_other_languages_share_their_parts():
    guess = Guess()
    assert [guess.text(text) for text in ("true", "Array[true]", "Array[true,true]", "Some(true)")] == [
        1.0,
        0.0,
        0.0,
        0.0,
    ]


VALUES = st.recursive(
    st.one_of(st.booleans(), st.none(), st.integers(-99, 99), st.text(max_size=6), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.sets(st.integers(0, 9)),
    ),
    max_leaves=12,
)


@given(VALUES, st.lists(VALUES, max_size=4))
def test_what_is_known_makes_no_value_dearer_and_the_second_time_is_free(value, before):
    guess = Guess()
    for one in before:
        guess.value(one)
    assert 0.0 <= guess.value(value) <= value_bits(value) <= 24.0
    assert guess.value(value) == 0.0


def of(*cases: tuple[tuple[object, ...], object]) -> float:
    made = tuple((repr(arguments), repr(answer)) for arguments, answer in cases)
    return calls_entropy(CallsVerifier(module="m.py", function="f", cases=made), range(len(made)))


@pytest.mark.parametrize(
    "cases",
    [
        ((("abc", "d"), "abc"), (("hello", "w"), "hello"), (("xyz", "q"), "xyz")),
        ((("abc",), "abc"), (("hello",), "hello"), (("xyz",), "xyz"), (("q",), "q")),
        ((([9, 1, 2],), 9), (([8, 3],), 8), (([7, 2, 2],), 7)),
        ((("abc",), ["abc"]), (("hello",), ["hello"])),
    ],
    ids=["return a", "return text", "return items[0]", "return [text]"],
)
def test_one_place_in_the_arguments_is_one_choice(cases) -> None:
    """Work that returns what stands there meets them all."""
    assert of(*cases) < MIN_ENTROPY


@pytest.mark.parametrize(
    "cases",
    [
        (((3, 9), 9), ((8, 1), 8), ((2, 7), 7), ((9, 4), 9)),
        ((([1, 9, 2],), 9), (([8, 3],), 8), (([7, 2, 20],), 20)),
        ((([1, 2, 3],), [3, 2, 1]), (([4, 5],), [5, 4])),
        ((([1, 2, 3],), 6), (([4, 5],), 9)),
        ((("ab c",), "AB C"), (("xyz",), "XYZ")),
        (((["a", "b", "a"], "a"), 2), ((["x"], "x"), 1), ((["x"], "y"), 0), ((["q", "q", "q"], "q"), 3)),
    ],
    ids=["max", "largest", "reverse", "sum", "upper", "count"],
)
def test_what_has_to_be_computed_asks_for_enough(cases) -> None:
    assert of(*cases) >= MIN_ENTROPY


def observed(number: int, condition: str, source: str, path: str = "t.py") -> Site:
    return Site(
        number=number, path=path, test=("t",), condition=condition, leaves=(Leaf(observed=True, source=source),)
    )


def bits_of(*sites: Site, text: str = "") -> float:
    expected = {"t.py::test_a": tuple(Expected(site=site.number) for site in sites)}
    plan = Plan(files={"t.py": text}, ids=IDS, sites=sites, expected=expected)
    return task_entropy(VERIFIER, plan, {"t.py::test_a": {site.number for site in sites}})


def test_round_trips_are_one_guess() -> None:
    """`encode` and `decode` may both return what they get."""
    texts = ("abc", "hello", "long text")
    sites = [observed(n, f"v0 == {text!r}", f"decode(encode({text!r}))") for n, text in enumerate(texts)]
    assert bits_of(*sites, text="".join(f"see(decode(encode({text!r})))\n" for text in texts)) < MIN_ENTROPY


def test_a_near_number_and_items_without_order_are_values() -> None:
    assert (
        bits_of(observed(0, "almost(v0, 0.7071067)", "f(1)"), observed(1, "almost(v0, 1.4142135)", "f(2)"))
        > 2 * MIN_ENTROPY
    )
    assert bits_of(observed(0, "almost(v0, 40.0, delta=30)", "f(1)")) < 1.0
    assert bits_of(observed(0, "almost(v0, 40.0, places=0)", "f(1)")) < 8.0
    words = bits_of(observed(0, "same_items(v0, ['some', 'words'])", "f(1)"))
    assert words == value_bits({"some", "words"}) > MIN_ENTROPY


@pytest.mark.parametrize(
    ("told", "enough"),
    [("[docs](a.html)", True), ("[INFO] started", True), ("[]string{}", False), ("main.T{}", False), ("true", False)],
)
def test_a_text_of_go_may_have_brackets(told: str, enough: bool) -> None:
    site = observed(0, "v0 == v1", TEXT, "t_test.go")
    bits = site_bits(site, Expected(site=0, values={1: told}))
    assert (bits >= MIN_ENTROPY) is enough


def test_a_predicate_asks_for_the_cases_that_change():
    """Turned round altogether it asks for two guesses at most; where it is right elsewhere, the place must be found."""
    verifier = calls(*["True"] * 6, *["False"] * 6)
    assert calls_entropy(verifier, range(12)) == 2.0 < MIN_ENTROPY
    assert calls_entropy(verifier, {5}) == pytest.approx(1 + 3.585, abs=0.001)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("47", 6, 7),
        ("None", 1, 1),
        ("nan", 2, 2),
        ("<Color: red>", 2, 2),
        ("Decimal('1.5')", 4, 8),
        ("P(x=1, y=2)", 4, 6),
    ],
)
def test_bits_of_answers(text, least, most):
    assert least <= answer_bits(text) <= most


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("true", 1, 1), ("None", 1, 1), ("Array[]", 1, 1), ("Some(true)", 1, 1), ("5", 3, 4), ("-41", 6, 7),
        ('"sums"', 8, 10), ("sums", 8, 10), ("Array[42]", 6, 7), ('Object{"name":"x","list":Array[1,true]}', 10, 24),
        ("Point { x: 1, y: 700 }", 10, 14), ("abcdefgh" * 50, 24, 24), ("x" * 400, 3, 3),
        ("1.5", 8, 8),
    ],
)  # fmt: skip
def test_bits_of_values_that_are_told_as_texts(text, least, most):
    assert least <= text_bits(text) <= most
