"""Questions of a review queue and their answers, and how far reviewers agree."""

from __future__ import annotations

from typing import Any

import pytest

from composer_web.core.errors import UserError
from composer_web.review import agreement
from composer_web.review.questions import EXAMPLE, parse

RIGHT = {"verdict": "right", "quality": "4"}


class TestAgreement:
    """Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, the example with four observers: 0.743 and 0.849."""

    ROWS = ("1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 .")

    def units(self) -> list[list[str]]:
        return [
            [value for value in unit if value != "."] for unit in zip(*(row.split() for row in self.ROWS), strict=True)
        ]

    def test_alpha_is_the_published_one(self) -> None:
        nominal, interval = agreement.alpha(self.units()), agreement.alpha(self.units(), "interval")
        assert nominal == pytest.approx(0.743, abs=5e-4)
        assert interval == pytest.approx(0.849, abs=5e-4)

    def test_bounds(self) -> None:
        assert agreement.alpha([["a", "a"], ["b", "b"]]) == 1.0
        assert agreement.alpha([["a", "b"], ["b", "a"]]) == pytest.approx(-0.5)
        assert agreement.alpha([["a", "a"]]) is None  # nothing varies
        assert agreement.alpha([["a"], ["b"]]) is None  # nothing is paired

    def test_kappa(self) -> None:
        pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
        assert agreement.kappa(pairs) == pytest.approx(0.4)  # (0.7 - 0.5) / (1 - 0.5)
        assert agreement.kappa([("y", "y")]) is None
        assert agreement.kappa([]) is None

    def test_share(self) -> None:
        assert agreement.share([["a", "a"], ["a", "b"], ["c"]]) == 0.5


class TestQuestions:
    @pytest.mark.parametrize(
        ("answers", "field", "words"),
        [
            ({"quality": "3"}, "verdict", "required; give an answer"),
            ({"verdict": "perhaps", "quality": "3"}, "verdict", "one of right, partly, wrong; found 'perhaps'"),
            ({"verdict": "right", "quality": "6"}, "quality", "one of 1, 2, 3, 4, 5"),
            ({"verdict": ["right"], "quality": 3}, "verdict", "one answer is needed, not list"),
            ({**RIGHT, "flags": ["x"]}, "flags", "found 'x'"),
            ({**RIGHT, "note": "x" * 2001}, "note", "at most 2000"),
            ({**RIGHT, "colour": "red"}, "colour", "no such question"),
        ],
    )
    def test_wrong_answers_are_named(self, answers: dict[str, Any], field: str, words: str) -> None:
        with pytest.raises(UserError) as caught:
            EXAMPLE.check(answers)
        assert words in caught.value.fields[field]

    def test_answers_are_cleaned(self) -> None:
        given = {"verdict": "right", "quality": 4, "flags": ["eager", "reward_hack"], "note": " "}
        assert EXAMPLE.check(given) == {"verdict": "right", "quality": "4", "flags": ["reward_hack", "eager"]}

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ([], "at least 1"),
            ([{"kind": "scale", "id": "a", "text": "A", "low": 3, "high": 2}], "not above 3"),
            ([{"kind": "text", "id": "a", "text": "A"}] * 2, "the same id"),
            ([{"kind": "magic", "id": "a", "text": "A"}], "questions"),
            ([{"kind": "choice", "id": "a", "text": "A", "options": [{"value": "x"}, {"value": "x"}]}], "same value"),
        ],
    )
    def test_wrong_questions_are_refused(self, data: Any, words: str) -> None:
        with pytest.raises(UserError, match=words):
            parse(data)

    def test_options_have_keys(self) -> None:
        def question(*keys: str) -> dict[str, Any]:
            options = [{"value": f"v{place}", "key": key} for place, key in enumerate(keys)]
            return {"kind": "choice", "id": "q", "text": "Q?", "options": options}

        assert [option.key for option in parse([question("y", "n", "")]).get("q").options] == ["y", "n", ""]  # type: ignore[union-attr]
        for keys, words in (
            (("y", "y"), "two options of question 'q' have the same key"),
            (("2", ""), "the same key"),  # the second one's number
            (("j", ""), "the key 'j' of question 'q' is one of the page's own: j, k, o, t"),
            (("Y", ""), "should match pattern"),
            (("yy", ""), "should match pattern"),
        ):
            with pytest.raises(UserError, match=words):
                parse([question(*keys)])
