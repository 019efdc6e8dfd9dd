"""manage.py audit: audit a run's trajectories by rules, list findings, and decide on them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.accounts.models import User
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.rollouts import findings, llm_judge, selectors
from composer_web.runs.models import Run
from composer_web.runs.selectors import get_run
from sandbox.grading.audit.judge import JudgeError

STATES: dict[str, findings.Decision] = {"confirm": "confirmed", "dismiss": "dismissed", "reopen": "open"}


class Command(BaseCommand):
    help = "Audit RUN by the rules in force (idempotent) and print its findings; or decide on one finding."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", type=int, nargs="?", help="run to audit")
        parser.add_argument("--everything", action="store_true", help="also groups that these rules have read already")
        parser.add_argument("--list", action="store_true", help="only print the findings, audit nothing")
        parser.add_argument("--judge", action="store_true", help="also ask the language model about every rollout")
        parser.add_argument("--state", default="", help="print only findings that are open, confirmed or dismissed")
        for name, state in STATES.items():
            parser.add_argument(f"--{name}", type=int, metavar="FINDING", help=f"make this finding {state}")
        parser.add_argument("--user", help="who decides (needed to decide)")
        parser.add_argument("--note", default="", help="why")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            chosen = [(name, o[name]) for name in STATES if o[name] is not None]
            if chosen:
                self._decide(chosen, o)
            elif o["run"] is None:
                raise CommandError("name the run to audit, or a finding to decide on; see --help")
            else:
                self._audit(o)
        except (UserError, ArtifactError) as error:
            raise CommandError(str(error)) from error

    def _judge(self, run: Run) -> None:
        judge = llm_judge.configured()
        if judge is None:
            raise CommandError("there is no judge: set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL")
        read = lost = 0
        for group in selectors.with_trajectories(run):
            for rollout in selectors.of_group(group).exclude(artifact_key=""):
                try:
                    llm_judge.judge_rollout(rollout=rollout, judge=judge)
                    read += 1
                except JudgeError as error:
                    lost += 1
                    self.stderr.write(f"rollout {rollout.pk}: {error}")
        self.stderr.write(f"the judge read {read} rollouts and gave no answer about {lost}")

    def _decide(self, chosen: list[tuple[str, int]], o: dict[str, Any]) -> None:
        if len(chosen) > 1:
            raise CommandError("one decision at a time")
        user = User.objects.filter(username=o["user"] or "").first()
        if user is None or not user.may("reviewer"):
            raise CommandError("--user must name a person who is at least a reviewer: decisions carry a name")
        ((name, pk),) = chosen
        finding = findings.decide(finding=selectors.get_finding(pk), to=STATES[name], actor=user, note=o["note"])
        self.stdout.write(f"finding {finding.pk} is {finding.state}")

    def _audit(self, o: dict[str, Any]) -> None:
        run = get_run(o["run"])
        if not o["list"]:
            counts = findings.audit_run(run=run, everything=o["everything"])
            self.stderr.write(
                f"audited {counts['groups']} groups, {counts['changed']} findings changed, "
                f"{counts['unreadable']} groups could not be read"
            )
        if o["judge"]:
            self._judge(run)
        found = selectors.findings().filter(run=run).order_by("pk")
        for finding in found.filter(state=o["state"]) if o["state"] else found:
            self.stdout.write(
                json.dumps(
                    {
                        "id": finding.pk,
                        "rule": finding.rule,
                        "version": finding.rule_version,
                        "severity": finding.severity,
                        "state": finding.state,
                        "subject": finding.subject,
                        "rollout": finding.rollout_id,
                        "summary": finding.summary,
                    }
                )
            )
