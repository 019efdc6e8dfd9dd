"""The Python recipe: build a wheel, install it with what its tests need, and let the checkout take its place.

Attempts differ: everything at its newest; as it was when the checkout was released; built beside older build tools, or
from the published wheel; and last not built at all, the sources put on the path with their declared dependencies. Each
ends with a run of the suite, so that missing modules, plugins and fixtures are found and added.
"""

from __future__ import annotations

import dataclasses

from sandbox.backends.base import Sandbox
from sandbox.install.recipes.base import Installed, Log
from sandbox.install.recipes.goals import Goal
from sandbox.install.recipes.python import goals as python_goals
from sandbox.install.recipes.python.building import install_package
from sandbox.install.recipes.python.suite import Suite
from sandbox.install.recipes.python.venv import Venv
from sandbox.install.recipes.services import local
from sandbox.install.recipes.system import SystemPackages
from sandbox.network import RegistryPolicy
from sandbox.repositories.checkout import Checkout


class PythonRecipe:
    language = "python"
    registries = RegistryPolicy()

    def applies(self, checkout: Checkout) -> bool:
        names = ("pyproject.toml", "setup.py", "setup.cfg")
        return any(n in checkout.files for n in names) or any(p.endswith(".py") for p in checkout.files)

    def goals(self, checkout: Checkout) -> list[Goal]:
        return python_goals.goals(checkout)

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        venv, system = Venv(box, checkout, attempt, log), SystemPackages()
        await venv.make()
        package = await install_package(venv, system)
        installed = await Suite(venv, package, system).tests()
        provenance = {"system_packages": " ".join(system.provided), "compiled_parts": package.compiled}
        return dataclasses.replace(installed, provenance={k: v for k, v in provenance.items() if v})

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        """Byte code of the checkout itself is never written (PYTHONDONTWRITEBYTECODE); services end in good order."""
        await local.stop(box, log)
