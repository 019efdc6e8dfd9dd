# Runs inside the installing sandbox with the environment's own python: `python -c <this text> CHECKOUT WHEEL...`.
# The package was installed from a wheel; here the copy in site-packages gives way to the checkout, so that what is
# edited is what is imported. What only building makes (extension modules, generated sources) moves into the checkout.
# Prints one JSON object. Works for every build backend alike, and what it leaves needs no build tool any more.
# mypy: ignore-errors
import json
import os
import shutil
import sys
import sysconfig
import zipfile

SKIPPED = {".git", "node_modules", "__pycache__", "build", "dist", ".tox", ".nox"}
MAX_DEPTH = 4


def main():
    checkout, wheels = sys.argv[1], sys.argv[2:]
    site = sysconfig.get_path("purelib")
    roots, kept, generated, modules = [], [], [], []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if not n.endswith("/")]
            contents = {n: archive.read(n) for n in names if n.endswith(".py")}
        info = next(n.split("/")[0] for n in names if n.split("/")[0].endswith(".dist-info"))
        tops = {}
        for name in names:
            top = name.split("/")[0]
            if not top.endswith((".dist-info", ".data")):
                tops.setdefault(top, []).append(name)
        gone = set()
        for top, files in sorted(tops.items()):
            if top.endswith(".pth"):
                continue
            modules.append(top.split(".")[0])
            root = home_of(checkout, top, files, contents)
            if root is None and top_is_made(checkout, files):
                root = roots[0] if roots else "."  # beside what else there is, so that it is the checkout's as well
            if root is None:
                kept.append(top)
                continue
            for name in files:
                inside = os.path.join(checkout, root, name)
                installed = os.path.join(site, name)
                if os.path.exists(installed) and (not os.path.exists(inside) or rewritten(inside, contents.get(name))):
                    os.makedirs(os.path.dirname(inside), exist_ok=True)
                    shutil.copy2(installed, inside)
                    generated.append(os.path.relpath(inside, checkout))
                if os.path.lexists(installed):
                    os.unlink(installed)
                gone.add(name)
            clear(os.path.join(site, top))
            if root not in roots:
                roots.append(root)
        forget(os.path.join(site, info), gone)
    if roots:
        name = os.path.basename(checkout) if not wheels else os.path.basename(wheels[0]).split("-")[0]
        lines = [os.path.normpath(os.path.join(checkout, root)) for root in roots]
        with open(os.path.join(site, f"__editable__.{name}.pth"), "w") as file:
            file.write("".join(line + "\n" for line in lines))
    found = {"roots": roots, "kept": kept, "generated": generated[:1000], "modules": modules}
    sys.stdout.write(json.dumps(found) + "\n")


def top_is_made(checkout, files):
    """Whether building made all of a top-level name: an extension module, and no Python source of it in the checkout."""
    if not any(name.endswith((".so", ".abi3.so")) for name in files):
        return False
    here = {os.path.relpath(os.path.join(folder, n), checkout) for folder, _, names in os.walk(checkout) for n in names}
    return not any(path.endswith("/" + name) or path == name for name in files if name.endswith(".py") for path in here)


def rewritten(path, built):
    """Whether building made another text of a module (2to3, a filled-in version), which is what would be installed."""
    if built is None:
        return False
    with open(path, "rb") as file:
        return file.read().replace(b"\r\n", b"\n") != built.replace(b"\r\n", b"\n")


def home_of(checkout, top, files, contents):
    """The directory of the checkout (relative) below which the wheel's files of one top-level name lie, or None."""
    best, score = None, 0
    sources = [name for name in files if name.endswith(".py")] or files
    for folder, inner, names in os.walk(checkout):
        relative = os.path.relpath(folder, checkout)
        inner[:] = sorted(n for n in inner if n not in SKIPPED)
        if relative != "." and relative.count(os.sep) >= MAX_DEPTH - 1:
            inner[:] = []
        if top not in inner and top not in names:
            continue
        found = 0
        for name in sources:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                found += 1
                if name in contents:
                    with open(path, "rb") as file:
                        found += file.read() == contents[name]
        if found > score:
            best, score = relative, found
    return best if score >= len(sources) * 0.5 else None


def clear(path):
    """Remove the directories that nothing is left in, byte code apart."""
    if not os.path.isdir(path):
        return
    for folder, inner, names in os.walk(path, topdown=False):
        if all(name.endswith(".pyc") for name in names) and not [
            n for n in inner if n != "__pycache__" and os.path.isdir(os.path.join(folder, n))
        ]:
            shutil.rmtree(folder)


def forget(info, gone):
    """Leave the removed files out of the record of what is installed."""
    record = os.path.join(info, "RECORD")
    with open(record) as file:
        lines = [line for line in file if line.split(",")[0].strip('"') not in gone]
    with open(record, "w") as file:
        file.writelines(lines)


main()
