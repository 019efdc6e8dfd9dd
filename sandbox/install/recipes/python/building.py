"""Build and install a wheel of the package itself, then let the checkout take the wheel's place.

If the build fails, try other ways in turn: add what the error message asks for, use older build tools, take the
extension modules from the published wheel of the same files, and finally put the sources on the path.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from sandbox.backends.base import WORKDIR, ExecResult
from sandbox.install.recipes import diagnosis
from sandbox.install.recipes.base import build_failure
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.python import goals, project, requirements
from sandbox.install.recipes.python.repair import build_bounds, build_requirements
from sandbox.install.recipes.python.venv import BUILD_BOUNDS, INSTALL_SECONDS, PYTHON, VENV, Venv
from sandbox.install.recipes.system import SystemPackages
from sandbox.repositories.checkout import strings

WHEELS = "/tmp/wheels"  # noqa: S108 (inside the sandbox)
BUILD_VENV = "/tmp/build-tools"  # noqa: S108
SOURCE = "/tmp/source"  # noqa: S108
BUILD_SECONDS = 900.0
BUILD_ROUNDS = 4
BUILD_TOOLS = ("setuptools<70", "wheel", "cython<3.1", "numpy", "cffi", "setuptools-scm", "six", "pbr")
OLD_TOOLS_ATTEMPT, SOURCES_ATTEMPT = 3, 4
LAYOUT_ERROR = "it cannot be told where in the checkout the package lies"


@dataclass(frozen=True, slots=True)
class Package:
    roots: tuple[str, ...]
    modules: tuple[str, ...]
    compiled: str = ""
    """Where its extension modules come from, if they were not built here."""


async def install_package(venv: Venv, system: SystemPackages) -> Package:
    """Install the checkout's package with its test extras. Raises InstallFailed, SandboxError."""
    if venv.attempt >= SOURCES_ATTEMPT:
        return await sources_only(venv)
    built, compiled = await build(venv, system), ""
    if built.exit_code != 0:
        compiled = f"published wheel of {venv.checkout.name} {venv.checkout.version}"
        if venv.attempt < OLD_TOOLS_ATTEMPT or not await published(venv):
            raise failure(built, "building it failed", Reason.NATIVE_BUILD)
    extras = requirements.test_extras(await offered(venv))
    wanted = f"[{','.join(extras)}]" if extras else ""
    done = await venv.pip(f"$(ls {WHEELS}/*.whl | head -1){wanted}")
    if done.exit_code != 0 and wanted:
        venv.log("its test extras cannot all be installed: the package alone first")
        done = await venv.pip(f"$(ls {WHEELS}/*.whl | head -1)")
    if done.exit_code != 0:
        raise failure(done, "installing it failed", Reason.DEPENDENCY)
    grafted = await venv.script("graft.py", f"{WORKDIR} {WHEELS}/*.whl")
    if grafted["kept"]:
        venv.log(f"{LAYOUT_ERROR}: {', '.join(grafted['kept'])}")
    modules = tuple(dict.fromkeys(m for m in grafted["modules"] if m.isidentifier()))
    return Package(tuple(grafted["roots"]) or (".",), modules, compiled)


async def build(venv: Venv, system: SystemPackages) -> ExecResult:
    """A wheel in WHEELS, what a failure asks for being added round by round. Raises SandboxError."""
    how = f"--python {PYTHON} --build-constraints {BUILD_BOUNDS}"
    if old := venv.attempt == OLD_TOOLS_ATTEMPT:
        declared = strings(venv.checkout.table("build-system").get("requires"))
        own = [line for line in declared if not line.lower().startswith(("setuptools", "cython", "numpy"))]
        await venv.run(
            f"uv venv -q --python $({PYTHON} -c 'import sys; print(sys._base_executable)') {BUILD_VENV}", 60.0
        )
        for some in (BUILD_TOOLS, tuple(own)):
            if some:
                await into_build_venv(venv, *some)
        how = f"--no-build-isolation --python {BUILD_VENV}"
    for _ in range(BUILD_ROUNDS):
        built = await venv.run(
            f"rm -rf {SOURCE} && cp -r {WORKDIR} {SOURCE} && cd {SOURCE} && "
            f"uv build --wheel {how} --out-dir {WHEELS} . </dev/null && ls {WHEELS}",
            BUILD_SECONDS,
        )
        if built.exit_code == 0:
            return built
        said = built.output.decode("utf-8", "replace")
        bounds, names = build_bounds(said), build_requirements(said, project.layout(venv.checkout).modules)
        if old:
            helped = bool(bounds or names) and (await into_build_venv(venv, *bounds, *names)).exit_code == 0
        else:
            helped = await venv.bound(*bounds) if bounds else False
        if not helped and not await system.provide(venv, diagnosis.system_packages(said)):
            return built
    return built


def failure(result: ExecResult, what: str, otherwise: Reason) -> InstallFailed:
    """What a failed command says. This machine's Python suits, or nothing would have been built: words of another
    version are of a dependency or a compiler, and another attempt may do without."""
    found = build_failure(result, what)
    return InstallFailed(otherwise, str(found)) if found.reason is Reason.LANGUAGE_VERSION else found


async def into_build_venv(venv: Venv, *wanted: str) -> ExecResult:
    names = " ".join(map(shlex.quote, wanted))
    return await venv.run(f"uv pip install -q --python {BUILD_VENV} {names}", INSTALL_SECONDS)


async def published(venv: Venv) -> bool:
    """The wheel that the index has of this very version, if its modules are those of the checkout, byte for byte.

    Only what building makes (extension modules) is then taken from it: graft.py leaves everything else as it is here.
    """
    name, version = venv.checkout.name, venv.checkout.version
    if not version:
        return False
    wanted = shlex.quote(f"{name}=={version}")
    done = await venv.run(
        f"[ -d {BUILD_VENV} ] || uv venv -q --python {PYTHON} {BUILD_VENV}; uv pip install -q --python {BUILD_VENV} pip && "
        f"rm -rf {WHEELS} && {BUILD_VENV}/bin/python -m pip download -q --only-binary :all: --no-deps -d {WHEELS} {wanted}",
        INSTALL_SECONDS,
    )
    if done.exit_code != 0:
        return False
    found = await venv.script("same_files.py", f"{WORKDIR} {WHEELS}/*.whl")
    if not found["same"]:
        venv.log(f"the published wheel is not of these files: {found['differs']}")
        return False
    venv.log("what cannot be built here is taken from the wheel that was published of the same files")
    return True


async def offered(venv: Venv) -> list[str]:
    """The extras that the built wheel offers."""
    shown = await venv.run(f"unzip -p {WHEELS}/*.whl '*.dist-info/METADATA' | grep -a '^Provides-Extra:'", 30.0)
    return re.findall(r"(?m)^Provides-Extra: *(\S+)", shown.output.decode("utf-8", "replace"))


async def sources_only(venv: Venv) -> Package:
    """The checkout's own directories on the path, and the dependencies that its metadata declares. Raises InstallFailed."""
    checkout, layout = venv.checkout, project.layout(venv.checkout)
    for root in layout.roots:
        place = WORKDIR if root == "." else f"{WORKDIR}/{root}"
        await venv.run(
            f"echo {place} >> $({PYTHON} -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')/__editable__.pth",
            30.0,
        )
    lines = [line for line in goals.declared(checkout) if (r := requirements.parse(line)) and r.url is None]
    if lines:
        await venv.pip_each(lines)
    name = canonicalize_name(checkout.name).replace("-", "_")
    info = f"{VENV}/lib/python*/site-packages/{name}-{checkout.version or '0'}.dist-info"
    metadata = f"Metadata-Version: 2.1\\nName: {checkout.name}\\nVersion: {checkout.version or '0'}\\n"
    await venv.run(
        f"d=$(echo {VENV}/lib/python*/site-packages)/$(basename {info}); mkdir -p $d; "
        f"printf {shlex.quote(metadata)} > $d/METADATA",
        30.0,
    )
    return Package(layout.roots, layout.modules)
