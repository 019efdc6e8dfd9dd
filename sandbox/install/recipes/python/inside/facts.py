# Runs inside a sandbox with the environment's own python, given module names. Prints one JSON object.
# mypy: ignore-errors
import importlib.metadata as metadata
import importlib.util
import json
import sys

plugins, extras = [], {}
for dist in metadata.distributions():
    for entry in dist.entry_points:
        if entry.group == "pytest11":
            plugins.append([dist.metadata["Name"].lower(), entry.name, entry.value.split(":")[0]])
    extras[dist.metadata["Name"].lower()] = dist.metadata.get_all("Provides-Extra") or []
profile = False
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    try:
        settings.get_profile("ci")
        profile = True
    except Exception:  # noqa: BLE001 (hypothesis has its own error, another in each version)
        profile = False
found = {"plugins": sorted(plugins), "extras": extras, "hypothesis_ci": profile, "python": sys.version.split()[0]}
sys.stdout.write(json.dumps(found) + "\n")
