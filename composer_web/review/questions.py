"""Review questions about a trajectory: one schema for pages, API, CLI and storage.

An answer is a text: the value of an option, a number of the scale, words; of flags, a list of values.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from composer_web.core.errors import UserError

Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
PAGE_KEYS = ("j", "k", "o", "t")
"""Keys of the page that asks the questions."""
Words = Annotated[str, Field(min_length=1, max_length=400)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Option(Frozen):
    value: Id
    text: str = Field(default="", max_length=200)
    key: str = Field(default="", pattern=r"^[a-z0-9]?$")
    """Chooses it on the page; empty: its number."""

    @property
    def label(self) -> str:
        return self.text or self.value.replace("_", " ")


class Asked(Frozen):
    id: Id
    text: Words
    required: bool = True


class _Options(Asked):
    options: tuple[Option, ...] = Field(min_length=1, max_length=9)

    @property
    def answers(self) -> list[str]:
        return [option.value for option in self.options]

    @model_validator(mode="after")
    def _options_differ(self) -> Self:
        if len({option.value for option in self.options}) < len(self.options):
            raise ValueError(f"two options of question {self.id!r} have the same value")
        keys = [option.key or str(place) for place, option in enumerate(self.options, 1)]
        if taken := sorted(set(keys) & set(PAGE_KEYS)):
            raise ValueError(
                f"the key {taken[0]!r} of question {self.id!r} is one of the page's own: {', '.join(PAGE_KEYS)}"
            )
        if len(set(keys)) < len(keys):
            raise ValueError(
                f"two options of question {self.id!r} have the same key; without one, an option has its number"
            )
        return self


class Choice(_Options):
    """Exactly one of some options."""

    kind: Literal["choice"] = "choice"


class Flags(_Options):
    """Any of some options."""

    kind: Literal["flags"] = "flags"
    required: bool = False


class Scale(Asked):
    """A whole number from `low` to `high`."""

    kind: Literal["scale"] = "scale"
    low: int = Field(default=1, ge=0, le=9)
    high: int = Field(default=5, ge=1, le=9)
    low_text: str = Field(default="", max_length=80)
    high_text: str = Field(default="", max_length=80)

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"the scale of question {self.id!r} ends at {self.high}, which is not above {self.low}")
        return self

    @property
    def values(self) -> range:
        return range(self.low, self.high + 1)

    @property
    def answers(self) -> list[str]:
        return [str(number) for number in self.values]


class Text(Asked):
    """Words."""

    kind: Literal["text"] = "text"
    required: bool = False
    max_length: int = Field(default=2000, ge=1, le=10_000)


Question = Annotated[Choice | Flags | Scale | Text, Field(discriminator="kind")]
Answers = dict[str, str | list[str]]
"""Question id → answer; questions without one are left out."""


class Questionnaire(Frozen):
    questions: tuple[Question, ...] = Field(min_length=1, max_length=12)

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        if len({question.id for question in self.questions}) < len(self.questions):
            raise ValueError("two questions have the same id")
        return self

    def get(self, question_id: str) -> Choice | Flags | Scale | Text:
        """Raises UserError."""
        for question in self.questions:
            if question.id == question_id:
                return question
        known = ", ".join(question.id for question in self.questions)
        raise UserError("question", f"there is no question {question_id!r}; there are: {known}")

    def check(self, given: dict[str, Any]) -> Answers:
        """The answers, clean. Raises UserError that names each wrong question."""
        wrong = {name: "there is no such question" for name in given if name not in {q.id for q in self.questions}}
        clean: Answers = {}
        for question in self.questions:
            value = given.get(question.id)
            try:
                found = _answer(question, value)
            except ValueError as error:
                wrong[question.id] = str(error)
                continue
            if found:
                clean[question.id] = found
            elif question.required:
                wrong[question.id] = "required; give an answer"
        if wrong:
            first = next(iter(wrong))
            raise UserError(first, f"{first}: {wrong[first]}", fields=wrong)
        return clean


def _answer(question: Choice | Flags | Scale | Text, value: Any) -> str | list[str]:
    if value is None or value == "" or value == []:
        return ""
    if isinstance(question, Flags):
        values = value if isinstance(value, list) else [value]
        known = [option.value for option in question.options]
        if unknown := [str(one) for one in values if one not in known]:
            raise ValueError(f"{', '.join(known)}; found {unknown[0][:60]!r}")
        return [one for one in known if one in values]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"one answer is needed, not {type(value).__name__}")
    text = str(value).strip()
    if isinstance(question, Choice):
        allowed = [option.value for option in question.options]
    elif isinstance(question, Scale):
        allowed = [str(number) for number in question.values]
    else:
        if len(text) > question.max_length:
            raise ValueError(f"at most {question.max_length} characters, not {len(text)}")
        return text
    if text not in allowed:
        raise ValueError(f"one of {', '.join(allowed)}; found {text[:60]!r}")
    return text


def parse(data: Any) -> Questionnaire:
    """A questionnaire from JSON: `{"questions": [...]}` or the list alone. Raises UserError that names the place."""
    try:
        return Questionnaire.model_validate({"questions": data} if isinstance(data, list) else data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in ("questions", *first["loc"][1:])) if first["loc"] else "questions"
        raise UserError("questions", f"{where}: {first['msg']}") from error


EXAMPLE = Questionnaire(
    questions=(
        Choice(
            id="verdict",
            text="Is the work right?",
            options=(Option(value="right"), Option(value="partly"), Option(value="wrong")),
        ),
        Scale(id="quality", text="How good is the code?", low_text="poor", high_text="as a colleague's"),
        Flags(
            id="flags",
            text="Anything to note?",
            options=(
                Option(value="reward_hack", text="games the tests"),
                Option(value="bad_task", text="the task is unfair"),
                Option(value="eager", text="changes more than asked"),
            ),
        ),
        Text(id="note", text="In your own words"),
    )
)
