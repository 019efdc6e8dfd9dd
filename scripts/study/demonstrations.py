"""Demonstrations: rollouts of the scripted expert, or of any endpoint, recorded by the product, and the dataset of them."""

from __future__ import annotations

from typing import Any

from opencomposer import ApiError
from scripts.study import evaluations, tasks
from scripts.study.errors import StudyError
from scripts.study.expert.script import Expert
from scripts.study.expert.server import MODEL, ExpertServer
from scripts.study.plan import Evaluated
from scripts.study.requests import Answer, Job, Requests
from scripts.study.study import Made, Study


class Dataset(Job):
    id: int
    name: str
    conversations: int = 0
    dropped: int = 0


class Endpoint(Answer):
    name: str


def introduce(study: Study) -> Made:
    """The endpoint that will demonstrate, checked before hours of work depend on it. Raises StudyError."""
    if not study.teacher:
        with ExpertServer([], Expert(accuracy=study.plan.accuracy, seed=study.seed)) as server:
            _register(study.requests, study.expert, server)
    elif study.requests.found(Endpoint, "/endpoints/{name}", name=study.teacher) is None:
        remedy = "Add it on the page Policies or with `opencomposer endpoints create`, or leave TEACHER out."
        raise StudyError("teacher", f"there is no endpoint {study.teacher!r}", remedy)
    return {"policy": study.teacher or study.expert}


def demonstrate(study: Study) -> Made:
    """Rollouts of the scripted expert, or of the teacher, on the tasks of the suite `demonstrations`."""
    suite = study.suite("demonstrations")
    chosen = tasks.bundles(study.requests, suite)
    how = Evaluated(tasks=len(chosen), samples=1)
    policy = str(study.made["expert"]["policy"])

    def played() -> Made:
        return evaluations.ended(
            study.requests,
            evaluations.start(study.requests, policy=policy, suite=suite, how=how, seed=study.seed, limits=None),
        )

    if study.teacher:
        return played()
    with ExpertServer(chosen, Expert(accuracy=study.plan.accuracy, seed=study.seed)) as server:
        _register(study.requests, policy, server)
        return played()


def _register(requests: Requests, name: str, server: ExpertServer) -> None:
    """Raises StudyError where the product may not ask this machine."""
    fields: dict[str, Any] = {"url": server.url, "key": server.key, "takes_temperature": False}
    try:
        if requests.found(Endpoint, "/endpoints/{name}", name=name) is not None:
            requests.client.put("/endpoints/{name}", fields, name=name)
            return
        about = "The scripted expert of a study. It answers while the step `demonstrations` is under way."
        requests.client.post("/endpoints", {**fields, "name": name, "model": MODEL, "description": about})
    except ApiError as error:
        if error.field != "url":
            raise
        remedy = (
            "Stop the product (`make down`) and let `make study` start it, or choose an endpoint with TEACHER=name."
        )
        raise StudyError("expert", error.message, remedy) from error


def collect(study: Study) -> Made:
    """A dataset of the demonstrations: all of the expert's, which is wrong on purpose, and those of a teacher that passed."""
    requests, name = study.requests, f"{study.name}-demonstrations"
    known = next(
        (one for one in (Dataset.model_validate(row) for row in requests.client.get("/datasets")) if one.name == name),
        None,
    )
    if known is not None and known.state == "failed":
        requests.client.delete("/datasets/{dataset_id}", dataset_id=known.id)
        known = None
    if known is None:
        rollouts = f"evaluation={study.made['demonstrations']['id']}{'&verdict=passed' if study.teacher else ''}"
        known = Dataset.model_validate(requests.client.post("/datasets", {"name": name, "rollouts": rollouts}))
    done = requests.wait(
        Dataset,
        "/datasets/{dataset_id}",
        dataset_id=known.id,
        what=f"dataset {name}",
        good=("done",),
        bad=("failed",),
        tell=lambda one: f"{name} is {one.state}",
    )
    return {"dataset": name, "conversations": done.conversations, "dropped": done.dropped}
