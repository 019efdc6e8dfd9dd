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


def described_alike(checkout, metadata):
    path = os.path.join(checkout, "PKG-INFO")
    if not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    keys = ("Name:", "Version:", "Summary:", "Author", "Project-URL:", "Home-page:", "Requires-Dist:")
    mine, theirs = ({line for line in t.splitlines() if line.startswith(keys)} for t in (text, metadata))
    return mine == theirs and len(mine) > 2


with zipfile.ZipFile(sys.argv[2]) as wheel:
    modules = [
        n for n in wheel.namelist() if n.endswith(".py") and not n.split("/")[0].endswith((".dist-info", ".data"))
    ]
    # What building writes (a version, a table) is not in the checkout at all.
    known = [n for n in modules if copies(n)]
    differs = [n for n in known if plain(wheel.read(n)) not in copies(n)]
    told = next((n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")), "")
    described = described_alike(sys.argv[1], wheel.read(told).decode() if told else "")
# Where there is no Python to compare, the description that its author wrote into both decides.
same = not differs and (2 * len(known) > len(modules) or (not known and described))
sys.stdout.write(json.dumps({"same": same, "differs": differs[:1]}) + "\n")
