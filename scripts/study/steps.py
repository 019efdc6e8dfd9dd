"""The steps of a study in order. A step reads what the steps before it made, and gives what the report or a later one needs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scripts.study import demonstrations, evaluations, model, runs, tasks
from scripts.study.errors import StudyError
from scripts.study.expert import repair
from scripts.study.plan import Plan
from scripts.study.requests import Job
from scripts.study.study import Made, Study

PHASES = ("before SFT", "after SFT", "after RL")
SUITES = ("held-out", "packages-held-out", "packages-new")
POLICY = "study-smollm2-135m"
EVALUATION_SEED = 1
"""The same for every seed of a study, so that all are measured on the same samples' seeds."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    seconds: float
    """Expected on two cores."""
    act: Callable[[Study], Made]


class Import(Job):
    id: int
    name: str


def download(study: Study) -> Made:
    return {"path": str(model.gguf(study.folder / "model").resolve()), "version": model.VERSION}


def import_policy(study: Study) -> Made:
    """The policy with the study's chat template, imported by a worker unless it is there."""
    requests = study.requests
    if requests.found(evaluations.Policy, "/policies/{name}", name=POLICY) is None:
        order = next(
            (one for one in requests.listed(Import, "/policy-imports") if (one.name, one.state) in _open(POLICY)), None
        )
        number = order.id if order else int(requests.client.post("/policies", _imported(study))["id"])
        requests.wait(
            Import,
            "/policy-imports/{import_id}",
            import_id=number,
            what=f"import of {POLICY}",
            good=("done",),
            bad=("failed",),
            tell=lambda one: f"{one.name} is {one.state}",
        )
    return {"policy": POLICY, "facts": requests.client.get("/policies/{name}", name=POLICY)["facts"]}


def _open(name: str) -> set[tuple[str, str]]:
    return {(name, state) for state in ("waiting", "running")}


def _imported(study: Study) -> dict[str, str]:
    return {
        "name": POLICY,
        "path": study.made["download"]["path"],
        "template": model.TEMPLATE.read_text(encoding="utf-8"),
        "description": f"SmolLM2-135M-Instruct of {model.PACKAGE} {model.VERSION}, with a template for tools.",
    }


def install(study: Study) -> Made:
    wanted = (*study.plan.train_packages, *study.plan.new_packages)
    return {"packages": [tasks.environment(study.requests, package) for package in wanted]}


def mutate(study: Study, suite: str) -> Made:
    """Bugs in packages: `packages-new` of packages that nothing trains on, the others of the two splits of the rest."""
    plan, new = study.plan, suite == "packages-new"
    chosen = plan.new_packages if new else plan.train_packages
    found = tasks.mutations(
        study.requests,
        name=study.suite(suite),
        purpose="train" if suite == "packages-train" else "held-out",
        packages=[package.name for package in chosen],
        count=plan.tasks_per_package,
    )
    return found.model_dump()


def held_out(study: Study) -> Made:
    count = study.plan.held_out.tasks
    return _posted(study, "held-out", "held-out", tasks.procedural("held-out", "held-out", count, 0))


def training(study: Study, suite: str, count: int) -> Made:
    """Procedural tasks of the seed's own, with all training tasks of packages."""
    of_packages = tasks.bundles(study.requests, study.suite("packages-train"))
    if suite == "demonstrations" and not study.teacher:
        of_packages = [task for task in of_packages if repair.fixes(task)]
    return _posted(study, suite, "train", [*tasks.procedural(suite, "train", count, study.seed), *of_packages])


def _posted(study: Study, suite: str, purpose: tasks.Purpose, chosen: list[Any]) -> Made:
    text = f"{suite} of the {study.plan.size} study, seed {study.seed}"
    made = tasks.posted(study.requests, name=study.suite(suite), purpose=purpose, tasks=chosen, description=text)
    return made.model_dump()


def tune(study: Study) -> Made:
    name, dataset = f"{study.name}-sft", study.made["dataset"]["dataset"]
    config = runs.sft(study.plan, name=name, policy=POLICY, dataset=dataset, seed=study.seed)
    return _trained(study, config)


def reinforce(study: Study) -> Made:
    """RL from the SFT policy. Raises StudyError when SFT left too little to learn from."""
    score = study.made["after SFT held-out"]["results"]["pass1"] or 0.0
    if score < study.plan.gate:
        raise StudyError(
            "gate",
            f"SFT leaves pass@1 {score:.1%} on held-out procedural tasks, below {study.plan.gate:.0%}",
            "RL would find no signal: raise the expert's accuracy, the demonstrations or the SFT steps of the plan.",
        )
    start, suite = study.made["sft"]["policy"], study.suite("train")
    config = runs.rl(study.plan, name=f"{study.name}-rl", policy=start, suite=suite, seed=study.seed)
    return _trained(study, config)


def _trained(study: Study, config: dict[str, Any]) -> Made:
    done = runs.wait(study.requests, runs.ensure(study.requests, config))
    return {
        "run": done.id,
        "policy": done.policy_out,
        "steps": done.step,
        "curves": runs.curves(study.requests, done.id),
        "insights": study.requests.client.get("/runs/{run_id}/insights", run_id=done.id),
    }


def evaluate(study: Study, phase: str, suite: str) -> Made:
    sources = {"before SFT": "import", "after SFT": "sft", "after RL": "rl"}
    policy = str(study.made[sources[phase]]["policy"])
    how = study.plan.held_out if suite == "held-out" else study.plan.packages
    number = evaluations.start(
        study.requests, policy=policy, suite=study.suite(suite), how=how, seed=EVALUATION_SEED, limits=study.plan
    )
    return evaluations.ended(study.requests, number)


def steps(plan: Plan) -> list[Step]:
    """All steps in order, with the seconds that they are expected to take on two cores."""
    packages, per = (*plan.train_packages, *plan.new_packages), plan.tasks_per_package
    installed = sum(bool(package.version) for package in packages)
    played = {"held-out": plan.held_out, "packages-held-out": plan.packages, "packages-new": plan.packages}

    def evaluated(phase: str, suite: str) -> Step:
        seconds = 20 + played[suite].tasks * played[suite].samples * (4 if suite == "held-out" else 8)
        return Step(f"{phase} {suite}", seconds, functools.partial(evaluate, phase=phase, suite=suite))

    def of_packages(suite: str, count: int) -> Step:
        return Step(suite, 30 + 40 * count * per, functools.partial(mutate, suite=suite))

    def of_seed(suite: str, count: int) -> Step:
        return Step(f"suite {suite}", 10 + 1.5 * count, functools.partial(training, suite=suite, count=count))

    rollouts = plan.rl_steps * plan.rl_groups * plan.group_size
    return [
        Step("download", 10, download),
        Step("expert", 5, demonstrations.introduce),
        Step("import", 60, import_policy),
        Step("install", 10 + 90 * installed, install),
        of_packages("packages-train", len(plan.train_packages)),
        Step("suite held-out", 10 + 1.5 * plan.held_out.tasks, held_out),
        of_seed("demonstrations", plan.demonstrations),
        of_seed("train", plan.prompts),
        evaluated("before SFT", "held-out"),
        Step("demonstrations", 20 + plan.demonstrations, demonstrations.demonstrate),
        Step("dataset", 20, demonstrations.collect),
        Step("sft", 60 + plan.sft_steps * plan.sft_batch_tokens / 100, tune),
        evaluated("after SFT", "held-out"),
        Step("rl", 60 + rollouts * 12.0, reinforce),
        evaluated("after RL", "held-out"),
        # Last, so that the gain of RL is known before the packages take their time.
        of_packages("packages-held-out", len(plan.train_packages)),
        of_packages("packages-new", len(plan.new_packages)),
        *[evaluated(phase, suite) for suite in SUITES[1:] for phase in PHASES],
    ]
