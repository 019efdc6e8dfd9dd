"""`python -m scripts.stack up|demo|down|status`; the Makefile is the front door."""

from __future__ import annotations

import argparse
import sys
import time

from . import environment, foreground
from .errors import StackError
from .layout import Layout
from .lifecycle import bring_down, bring_up, first_person, say
from .supervision import Supervisor


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.stack", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the product and stay until Ctrl-C")
    up.add_argument("--only-services", action="store_true", help="Postgres and Valkey alone")
    up.add_argument("--detach", action="store_true", help="leave it running")
    start = commands.add_parser("demo", help="start the product and train the toy policy")
    start.add_argument("--new", action="store_true", help="begin anew instead of resuming")
    start.add_argument("--exit", action="store_true", help="stop everything when the run has ended")
    commands.add_parser("down", help="stop everything")
    commands.add_parser("status", help="what runs")
    arguments = parser.parse_args()
    try:
        layout = Layout.from_environment()
        match arguments.command:
            case "up":
                return _up(layout, only_services=arguments.only_services, detach=arguments.detach)
            case "demo":
                return demo(layout, new=arguments.new, leave=arguments.exit)
            case "down":
                say("stopped" if bring_down(layout) else "nothing was running")
                return 0
            case _:
                return _status(layout)
    except StackError as error:
        say(f"error: {error}")
        return 1


def _up(layout: Layout, *, only_services: bool, detach: bool) -> int:
    foreground.obey_signals()
    began = time.monotonic()
    started_here = False
    try:
        supervisor, started_here = bring_up(layout, only_services=only_services)
        if only_services:
            say(
                f"ready after {time.monotonic() - began:.1f} s; addresses: {layout.run / 'env'}; `make down` stops them"
            )
        else:
            first_person(layout)
            _greet(layout, began)
        if detach or not started_here:
            say("it keeps running; `make down` stops it")
            return 0
        say("Ctrl-C stops it")
        code = foreground.stay(layout, supervisor)
        started_here = started_here and code != 0
        return code
    except foreground.Stop:
        return 0
    finally:
        if started_here and not detach:
            foreground.stop(layout)


def demo(layout: Layout, *, new: bool, leave: bool) -> int:
    foreground.obey_signals()
    began = time.monotonic()
    started_here = False
    try:
        supervisor, started_here = bring_up(layout)
        _greet(layout, began)
        code = foreground.run_beside(layout, ["demo", *(["--new"] if new else [])])
        if leave or code or not started_here:
            return code
        say(f"the run has ended; look around at {_url(layout)} — Ctrl-C stops it")
        code = foreground.stay(layout, supervisor)
        started_here = code != 0
        return code
    except foreground.Stop:
        if leave:  # whoever waits for the result must not take this for one
            say("stopped before the run had ended")
        return int(leave)
    finally:
        if started_here:
            foreground.stop(layout)


def _url(layout: Layout) -> str:
    return environment.url(environment.read(layout))


def _greet(layout: Layout, began: float) -> None:
    say(f"OpenComposer is at {_url(layout)} (ready after {time.monotonic() - began:.1f} s; logs: {layout.logs})")


def _status(layout: Layout) -> int:
    supervisor = Supervisor.running(layout)
    if supervisor is None:
        print("not running")
        return 0
    print(_url(layout))
    for state in supervisor.states():
        print(
            f"{state.name:<16}{state.state.lower():<10}{state.pid or '':<8}{f'{state.seconds} s' if state.pid else ''}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
