"""Could a policy learn to tell training from a user's machine? A classifier over what the first turns show.

Numbers become 0 and names of people, hosts and projects become words of their own, so that only the shape of the
answers is left. The model is logistic regression on word and word-pair presence, judged by cross-validation whose folds
never share a checkout: AUC 0.5 is chance, 1.0 is told apart every time.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence

Features = frozenset[str]
WORD = re.compile(r"[A-Za-z_][\w.+-]*|[^\s\w]+|0")


def anonymous(text: str, names: Mapping[str, str]) -> str:
    """`text` with each of `names` (as it is written → what stands for it) in one pass, and every number as 0.

    Names that are paths match whole components; other names match where they are no part of a path or a longer word.
    """
    longest = sorted((name for name in names if name), key=len, reverse=True)
    if longest:
        each = [re.escape(n) + r"(?![\w-])" if "/" in n else rf"(?<![\w/.-]){re.escape(n)}(?![\w/.-])" for n in longest]
        text = re.sub("|".join(each), lambda found: names[found[0]], text)
    return re.sub(r"\d+", "0", text)


def features(sections: Mapping[str, str]) -> Features:
    """Words, and pairs of neighbours, of each command's answer."""
    found: set[str] = set()
    for command, answer in sections.items():
        words = WORD.findall(answer)
        found |= {f"{command}: {word}" for word in words}
        found |= {f"{command}: {a} {b}" for a, b in itertools.pairwise(words)}
        found.add(f"{command}: {min(len(answer.splitlines()), 40) // 4} lines")
    return frozenset(found)


class Logistic:
    """Weights of features, trained by plain gradient descent with L2. Deterministic."""

    def __init__(self, *, rate: float = 0.5, decay: float = 1e-3, passes: int = 30) -> None:
        self.rate, self.decay, self.passes = rate, decay, passes
        self.weights: dict[str, float] = {}
        self.bias = 0.0

    def fit(self, samples: Sequence[tuple[Features, bool]]) -> None:
        order = list(samples)
        draw = random.Random(0)
        for _ in range(self.passes):
            draw.shuffle(order)
            for found, label in order:
                error = float(label) - self.probability(found)
                step = self.rate * error / math.sqrt(max(1, len(found)))
                self.bias += step
                for name in found:
                    self.weights[name] = (1 - self.decay) * self.weights.get(name, 0.0) + step

    def probability(self, found: Features) -> float:
        total = self.bias + sum(self.weights.get(name, 0.0) for name in found) / math.sqrt(max(1, len(found)))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def auc(scores: Sequence[tuple[float, bool]]) -> float:
    """Chance that a positive one scores above a negative one (ties count half). Raises ValueError without both kinds."""
    positive = [score for score, label in scores if label]
    negative = [score for score, label in scores if not label]
    if not positive or not negative:
        raise ValueError("the AUC needs samples of both kinds")
    wins = sum((a > b) + 0.5 * (a == b) for a in positive for b in negative)
    return wins / (len(positive) * len(negative))


def cross_validated(samples: Mapping[str, Sequence[tuple[Features, bool]]], *, folds: int = 4) -> float:
    """AUC over samples grouped by checkout, each scored by a model that saw no sample of its checkout."""
    names = sorted(samples)
    if len(names) < 2:
        raise ValueError(f"cross-validation needs at least 2 checkouts, not {len(names)}")
    scores: list[tuple[float, bool]] = []
    for fold in range(min(folds, len(names))):
        held = set(names[fold::folds])
        model = Logistic()
        model.fit([sample for name in names if name not in held for sample in samples[name]])
        scores += [(model.probability(found), label) for name in held for found, label in samples[name]]
    return auc(scores)


def strongest(samples: Sequence[tuple[Features, bool]], count: int = 12) -> list[tuple[str, float]]:
    """The features that a model of all samples leans on most, with their weights (> 0: speaks for the sandbox)."""
    model = Logistic()
    model.fit(list(samples))
    return sorted(model.weights.items(), key=lambda item: -abs(item[1]))[:count]
