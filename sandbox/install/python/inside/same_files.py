# Runs inside the installing sandbox: `python -c <this text> CHECKOUT WHEEL`. Prints one JSON object: whether each Python
# module of the wheel is in the checkout with the same content (line endings apart), `differs` naming the first that is not.
# mypy: ignore-errors
import json
import os
import sys
import zipfile


def plain(data):
    return data.replace(b"\r\n", b"\n")


here = []
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                here.append((os.path.join(folder, name), plain(file.read())))


def copies(name):
    """What the checkout has at a path that ends like this one."""
    return [content for path, content in here if path.endswith("/" + name)]


with zipfile.ZipFile(sys.argv[2]) as wheel:
    modules = [
        n for n in wheel.namelist() if n.endswith(".py") and not n.split("/")[0].endswith((".dist-info", ".data"))
    ]
    # What building writes (a version, a table) is not in the checkout at all.
    known = [n for n in modules if copies(n)]
    differs = [n for n in known if plain(wheel.read(n)) not in copies(n)]
same = 2 * len(known) > len(modules) and not differs
sys.stdout.write(json.dumps({"same": same, "differs": differs[:1]}) + "\n")
