"""Command line: run the registry proxy on this machine's loopback, print an audit log, show the registries behind it.

python -m sandbox.network serve --deny NAME --audit FILE     then use the printed variables in another shell
python -m sandbox.network audit FILE [--denied]
python -m sandbox.network upstreams
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from sandbox.network.audit import AuditFile, AuditRecord, Decision, read
from sandbox.network.gateway import PORT, RegistryGateway
from sandbox.network.policy import CargoRules, GoRules, NpmRules, PythonRules, RegistryPolicy
from sandbox.network.upstream import UpstreamError, Upstreams, discover


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.command == "serve":
            asyncio.run(_serve(_policy(options), discover(), options.port, options.audit))
        elif options.command == "audit":
            _print_log(options.file, ("denied", "failed") if options.denied else ("allowed", "denied", "failed"))
        else:
            _print_upstreams(discover())
    except ValidationError as error:
        for problem in error.errors():
            place = ".".join(str(part) for part in problem["loc"])
            sys.stderr.write(f"error: policy: {place}: {problem['msg']}\n")
        return 1
    except (UpstreamError, OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sandbox.network", description="Registry proxy of sandboxes.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the proxy on the loopback until Ctrl-C, and print what it is asked")
    serve.add_argument("--port", type=int, default=PORT)
    serve.add_argument("--policy", type=Path, help="a policy as JSON; instead of the options below")
    serve.add_argument("--deny", action="append", default=[], metavar="NAME", help="a Python package that is denied")
    serve.add_argument(
        "--max", action="append", default=[], metavar="NAME=VERSION", help="highest version of a package"
    )
    serve.add_argument("--before", type=_date, metavar="DATE", help="only what was uploaded before (2024-05-01)")
    serve.add_argument("--npm", action="store_true", help="open the npm registry too")
    serve.add_argument("--go", action="store_true", help="open the Go module proxy too")
    serve.add_argument("--cargo", action="store_true", help="open the Cargo registry too")
    serve.add_argument("--audit", type=Path, metavar="FILE", help="also append the rows to this file")
    audit = commands.add_parser("audit", help="print an audit log and its sums")
    audit.add_argument("file", type=Path)
    audit.add_argument("--denied", action="store_true", help="only what was not allowed")
    commands.add_parser("upstreams", help="show the registries behind the proxy, without credentials")
    return parser


def _date(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date; write one like 2024-05-01") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _policy(options: argparse.Namespace) -> RegistryPolicy:
    if options.policy:
        return RegistryPolicy.model_validate_json(options.policy.read_bytes())
    highest = dict(entry.partition("=")[::2] for entry in options.max)
    return RegistryPolicy(
        python=PythonRules(deny=frozenset(options.deny), max_versions=highest),
        npm=NpmRules() if options.npm else None,
        go=GoRules() if options.go else None,
        cargo=CargoRules() if options.cargo else None,
        before=options.before,
    )


async def _serve(policy: RegistryPolicy, upstreams: Upstreams, port: int, audit: Path | None) -> None:
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(AuditFile(audit)) if audit else None

        def sink(record: AuditRecord) -> None:
            if file is not None:
                file(record)
            sys.stdout.write(f"{_line(record)}\n")
            sys.stdout.flush()

        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        gateway = RegistryGateway(policy, upstreams, sink, port=listener.getsockname()[1])
        for name, value in gateway.variables.items():
            sys.stdout.write(f"export {name}={value}\n")
        for path, text in gateway.files.items():
            sys.stdout.write(f"# ~/{path}:\n{text}")
        sys.stdout.flush()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        egress = await gateway.serve("by-hand", listener)
        try:
            await stop.wait()
        finally:
            await egress.close()


def _print_log(path: Path, wanted: Sequence[Decision]) -> None:
    counts: Counter[str] = Counter()
    fetched = sent = 0
    for record in read(path):
        counts[record.decision] += record.count
        fetched, sent = fetched + record.fetched, sent + record.sent
        if record.decision in wanted:
            sys.stdout.write(f"{_line(record)}\n")
    sums = ", ".join(f"{count} {decision}" for decision, count in sorted(counts.items())) or "no requests"
    sys.stdout.write(f"{sums}; {fetched} bytes fetched, {sent} bytes given\n")


def _line(record: AuditRecord) -> str:
    what = f"{record.method} {record.path}".strip() or record.detail
    why = f" [{record.rule}]" if record.rule else ""
    many = f" x{record.count}" if record.count > 1 else ""
    size = f"{record.sent} B in {record.seconds:.3f} s"
    stamp = record.time.isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{stamp} {record.sandbox} {record.decision}{why}{many} {what} {record.status} {size} {record.host}".rstrip()


def _print_upstreams(found: Upstreams) -> None:
    named = [("python", one) for one in found.python]
    named += [(kind, one) for kind, one in (("npm", found.npm), ("go", found.go), ("cargo", found.cargo)) if one]
    for kind, one in named:
        marks = [word for word, set_ in (("private", one.private), ("credentials", one.authorization)) if set_]
        sys.stdout.write(" ".join([kind, one.url, *marks]) + "\n")
    if found.http_proxy:
        sys.stdout.write("all of them through the host's own HTTP proxy\n")
    for words in found.skipped:
        sys.stdout.write(f"skipped: {words}\n")
    if not named:
        sys.stdout.write("no registry is known\n")


if __name__ == "__main__":
    raise SystemExit(main())
