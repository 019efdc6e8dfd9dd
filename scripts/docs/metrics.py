"""Reference of the run metrics (`trainer.learning.metrics.METRICS`)."""

from __future__ import annotations

from itertools import groupby

from scripts.docs.markdown import GENERATED, plain, table


def page() -> str:
    from trainer.learning.metrics import METRICS

    text = [
        "# Metrics of a run",
        GENERATED.format(source="`trainer/learning/metrics.py`"),
        "Pages, API, exports and mirrors use these names. A name that ends with `/` is a family: its members add a name of "
        "their own, such as a stop reason or a reward part.",
    ]
    for topic, names in groupby(sorted(METRICS), key=lambda name: name.partition("/")[0]):
        text.append(f"## {topic}")
        rows = [(f"`{name}`", METRICS[name].title, METRICS[name].unit, plain(METRICS[name].meaning)) for name in names]
        text.append(table(["Metric", "Title", "Unit", "Meaning"], rows))
    return "\n\n".join(text) + "\n"
