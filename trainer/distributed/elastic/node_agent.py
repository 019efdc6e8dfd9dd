"""Node agent: waits in a shared folder for runs that need another node, and runs their ranks here.

`python -m trainer.distributed.elastic.node_agent FOLDER` (`manage.py ranks` passes the product's folder). It serves one
run at a time and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from trainer.distributed.elastic.launch import end
from trainer.distributed.elastic.nodes import JOIN_REQUEST, JoinRequest, silent
from trainer.distributed.elastic.rpc import KEY

POLL_SECONDS = 0.5


class NodeAgent:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stopping = threading.Event()

    def run_for_ever(self) -> None:
        while not self.stopping.wait(POLL_SECONDS):
            for path in sorted(self.folder.glob(f"*/{JOIN_REQUEST}")):
                self._answer(path)

    def _answer(self, path: Path) -> None:
        """Join the run if it has a free place; stay until the run ends, its host is lost, or our agent ends."""
        try:
            if silent(path):
                return
            request = JoinRequest.model_validate_json(path.read_text(encoding="utf-8"))
            place = next((p for n in range(1, request.machines) if claim(p := path.with_name(f"taken-{n}"))), None)
        except FileNotFoundError:  # the run has just ended
            return
        if place is None:
            return
        environment = {name: value for name, value in os.environ.items() if name != KEY}
        command = [sys.executable, "-m", "trainer.distributed.elastic.torchrun", *request.arguments(host=False)]
        agent = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while agent.poll() is None and not silent(path) and not self.stopping.wait(POLL_SECONDS):
                place.touch()
        except FileNotFoundError:
            pass
        finally:
            end(agent)
            place.unlink(missing_ok=True)  # who comes next may take part in a run that goes on


def claim(place: Path) -> bool:
    try:
        if silent(place):
            place.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def run_agent(folder: Path) -> None:
    """Watch the folder until SIGTERM or SIGINT."""
    agent = NodeAgent(folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stopping.set())
    agent.run_for_ever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take part in runs that have several machines")
    parser.add_argument("folder", type=Path, help="folder `ranks` of the data folder that all machines see")
    run_agent(parser.parse_args().folder)
