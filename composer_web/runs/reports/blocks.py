"""Content of a report: text, and panels of metrics of some runs, in order."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from composer_web.core.errors import UserError, worded
from composer_web.core.numbers import ROW_ID
from composer_web.runs.charts.axes import Axis
from composer_web.runs.charts.comparing import MAX_GROUPED, MAX_RUNS
from composer_web.runs.charts.layouts import PanelShape

MAX_BLOCKS = 60
MAX_TEXT = 20_000
RunId = Annotated[int, Field(ge=1, lt=10**ROW_ID)]


class TextBlock(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["text"] = "text"
    text: str = Field(max_length=MAX_TEXT, description="Markdown; HTML in it is shown as it is written")


class PanelBlock(PanelShape):
    """Metrics of runs over each other."""

    kind: Literal["panel"] = "panel"
    size: Literal[1, 2, 3] = Field(default=3, description="Width in thirds of the page")
    runs: tuple[Annotated[int, Field(ge=1, lt=10**ROW_ID)], ...] = Field(
        min_length=1, max_length=MAX_GROUPED, description="Ids of runs"
    )
    axis: Axis = Axis.STEP
    smoothing: float = Field(default=0.0, ge=0.0, le=0.99, description="Weight of the exponential moving average")
    group: str = Field(
        default="", max_length=120, description="Setting whose values group the runs (mean and band); all: one group"
    )

    @model_validator(mode="after")
    def _few_lines(self) -> PanelBlock:
        if len(set(self.runs)) != len(self.runs):
            raise ValueError("a run is listed twice; list each run once")
        if len(self.runs) > MAX_RUNS and not self.group:
            raise ValueError(
                f"{len(self.runs)} runs; at most {MAX_RUNS} are drawn one by one: group them or remove some"
            )
        return self


Block = Annotated[TextBlock | PanelBlock, Field(discriminator="kind")]


class Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    blocks: tuple[Block, ...] = Field(default=(), max_length=MAX_BLOCKS)

    @property
    def run_ids(self) -> set[int]:
        return {pk for block in self.blocks if isinstance(block, PanelBlock) for pk in block.runs}


def parse(blocks: Any) -> Content:
    """Raises UserError that names every wrong field: `blocks.2.title`."""
    try:
        return Content.model_validate({"blocks": blocks})
    except ValidationError as error:
        fields = {_path(item["loc"]): worded(item) for item in error.errors(include_url=False)}
        first, message = next(iter(fields.items()))
        raise UserError(first, f"{first}: {message}", fields=fields) from error


def _path(location: tuple[int | str, ...]) -> str:
    """Without the name of the kind that pydantic puts between."""
    return ".".join(str(part) for at, part in enumerate(location) if not (at == 2 and part in ("text", "panel")))
