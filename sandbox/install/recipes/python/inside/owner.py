# Runs inside a sandbox with the environment's own python, given the name of a module. Prints one JSON object: which
# installed package has it, as `name==version`.
# mypy: ignore-errors
import importlib.metadata as metadata
import json
import sys

top = sys.argv[1].split(".")[0]
names = metadata.packages_distributions().get(top, [])
owner = f"{names[0]}=={metadata.version(names[0])}" if names else ""
sys.stdout.write(json.dumps({"owner": owner}) + "\n")
