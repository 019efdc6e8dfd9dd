"""A build that misses a library of the machine gets it below the environment's prefix, by the machine's own apt."""

import shutil
from pathlib import Path

import pytest

from sandbox.install.installer import install
from sandbox.network import Upstream, Upstreams
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile
from tests.sandbox.install.tools import TOOLS, packed
from tests.sandbox.network.local_registry import LocalRegistry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine"),
    pytest.mark.skipif(Path("/usr/include/sodium.h").exists(), reason="this machine has libsodium-dev itself"),
]

FILES = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "salt"\nversion = "1.0"\n',
    "setup.py": "from setuptools import Extension, setup\n\n"
    "setup(py_modules=['salt'], ext_modules=[Extension('_salt', ['salt.c'], libraries=['sodium'])])\n",
    "salt.c": "#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n#include <sodium.h>\n\n"
    "static PyObject *grain(PyObject *self, PyObject *none) {\n"
    "  if (sodium_init() < 0) { PyErr_SetString(PyExc_RuntimeError, \"no sodium\"); return NULL; }\n"
    "  return PyLong_FromUnsignedLong(randombytes_uniform(1));\n}\n"
    'static PyMethodDef methods[] = {{"grain", grain, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};\n'
    'static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_salt", "", -1, methods};\n'
    "PyMODINIT_FUNC PyInit__salt(void) { return PyModule_Create(&module); }\n",
    "salt.py": "import _salt\n\n\ndef grain():\n    return _salt.grain()\n",
    "tests/test_salt.py": "from salt import grain\n\n\ndef test_of_one_grain_it_is_the_first():\n    assert grain() == 0\n",
}  # fmt: skip


async def test_headers_and_library_come_below_the_prefix(backend, environments):
    """It compiles, and loads again in fresh sandboxes without network; the machine itself gets nothing."""
    checkout = Checkout("salt", "1.0", {path: TreeFile(text.encode()) for path, text in FILES.items()})
    log: list[str] = []
    async with LocalRegistry() as registry:
        for name in TOOLS:
            registry.add(name, *packed(name))
        upstreams = Upstreams(python=(Upstream.of(registry.index),))
        record = await install(environments, checkout, backend=backend, upstreams=upstreams, log=log.append)
    if any("this machine's apt does not give them" in line for line in log):
        pytest.skip(next(line for line in log if "this machine's apt does not give them" in line))
    assert record.built is not None, "\n".join([*log[-60:], str(record.problem)])
    assert "libsodium-dev" in record.provenance["system_packages"]
    assert record.evidence.repeatable and set(record.built.tests) == {
        "tests/test_salt.py::test_of_one_grain_it_is_the_first"
    }
    assert not Path("/usr/include/sodium.h").exists()
