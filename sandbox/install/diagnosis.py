"""From the words of a failed build or test to a named reason, and to the system package that is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from sandbox.install.errors import Reason

SYSTEM: dict[str, str] = {
    "Python.h": "python3-dev", "ffi.h": "libffi-dev", "openssl/": "libssl-dev", "libxml/": "libxml2-dev",
    "libxslt/": "libxslt1-dev", "libpq-fe.h": "libpq-dev", "mysql.h": "default-libmysqlclient-dev", "zlib.h": "zlib1g-dev",
    "bzlib.h": "libbz2-dev", "lzma.h": "liblzma-dev", "sqlite3.h": "libsqlite3-dev", "jpeglib.h": "libjpeg-dev",
    "png.h": "libpng-dev", "ft2build.h": "libfreetype-dev", "cairo.h": "libcairo2-dev", "glib.h": "libglib2.0-dev",
    "sasl/": "libsasl2-dev", "ldap.h": "libldap-dev", "lber.h": "libldap-dev", "krb5.h": "libkrb5-dev", "gssapi": "libkrb5-dev",
    "curl/curl.h": "libcurl4-openssl-dev", "uuid/uuid.h": "uuid-dev", "gmp.h": "libgmp-dev", "mpfr.h": "libmpfr-dev",
    "yaml.h": "libyaml-dev", "snappy": "libsnappy-dev", "lz4.h": "liblz4-dev", "zstd.h": "libzstd-dev", "hdf5.h": "libhdf5-dev",
    "geos_c.h": "libgeos-dev", "proj.h": "libproj-dev", "gdal.h": "libgdal-dev", "portaudio.h": "portaudio19-dev",
    "X11/": "libx11-dev", "GL/": "libgl-dev", "libusb.h": "libusb-1.0-0-dev", "magic.h": "libmagic-dev", "enchant": "libenchant-2-dev",
    "augeas": "libaugeas-dev", "systemd/": "libsystemd-dev", "dbus/": "libdbus-1-dev", "ncurses.h": "libncurses-dev",
    "readline/": "libreadline-dev", "cups/": "libcups2-dev", "pcre.h": "libpcre3-dev", "sodium.h": "libsodium-dev",
    "event.h": "libevent-dev", "leveldb": "libleveldb-dev", "rocksdb": "librocksdb-dev", "fuse.h": "libfuse-dev", "cblas.h": "libopenblas-dev",
    "sndfile.h": "libsndfile1-dev", "libmagic": "libmagic1", "libsndfile": "libsndfile1", "libGL.so": "libgl1",
}  # fmt: skip
"""Header (or library) → the Debian package that has it."""
PROGRAMS = {
    "gcc": "gcc", "cc": "gcc", "g++": "g++", "c++": "g++", "gfortran": "gfortran", "cmake": "cmake", "swig": "swig", "rustc": "rustc",
    "cargo": "cargo", "pg_config": "libpq-dev", "mysql_config": "default-libmysqlclient-dev", "curl-config": "libcurl4-openssl-dev",
    "xml2-config": "libxml2-dev", "xslt-config": "libxslt1-dev", "krb5-config": "libkrb5-dev", "pkg-config": "pkg-config",
    "make": "make", "patchelf": "patchelf", "ninja": "ninja-build", "autoconf": "autoconf", "automake": "automake",
    "libtool": "libtool", "bison": "bison", "flex": "flex", "java": "default-jdk-headless", "javac": "default-jdk-headless",
    "llvm-config": "llvm-dev", "clang": "clang", "protoc": "protobuf-compiler", "gdal-config": "libgdal-dev", "geos-config": "libgeos-dev",
}  # fmt: skip
_HEADER = re.compile(
    r"fatal error: ([\w./+-]+\.h\w*): No such file|cannot find -l(\w+)|(\S+\.so[.\d]*): cannot open shared object"
)
_PROGRAM = re.compile(
    r"(?:unable to execute '|command '|No such file or directory: '|can't find |could not find |Unable to find |error: )"
    r"([\w+-]+?)'?(?: failed: No such| executable not found|: command not found|: not found|$|'| not found)", re.MULTILINE | re.IGNORECASE,
)  # fmt: skip
_SIGNS: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    (Reason.LANGUAGE_VERSION, re.compile(r"requires a different Python|Requires-Python|requires Python|does not satisfy Python|Python version .{0,30}not supported|requires go >=|rustc [\d.]+ is not supported", re.IGNORECASE)),
    (Reason.NATIVE_BUILD, re.compile(r"gcc' failed|cc1plus|error: command .*gcc|CompileError|ninja: build stopped|CMake Error|cython.*error|linker|rustc|cargo", re.IGNORECASE)),
    (Reason.DEPENDENCY, re.compile(r"No solution found|unsatisfiable|not found in the package registry|ResolutionImpossible|No matching distribution|ERESOLVE|Failed to fetch", re.IGNORECASE)),
)  # fmt: skip
_TESTS: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    (Reason.SERVICE, re.compile(r"(?:localhost|127\.0\.0\.1|::1)\W.{0,60}(?:refused|111)|OperationalError.*connect|redis.*Connection|connection to server", re.IGNORECASE | re.DOTALL)),
    (Reason.NETWORK, re.compile(r"Temporary failure in name resolution|Name or service not known|Network is unreachable|nodename nor servname|NameResolutionError|getaddrinfo|ClientConnectorError|MaxRetryError|ConnectError", re.IGNORECASE)),
    (Reason.GPU, re.compile(r"CUDA|no NVIDIA|cudart|cupy", re.IGNORECASE)),
    (Reason.SECRETS, re.compile(r"API[_ ]?KEY|credentials? (?:are |is )?(?:required|not|missing)|NoCredentialsError|access token", re.IGNORECASE)),
    (Reason.TIMEOUT, re.compile(r"timed out after", re.IGNORECASE)),
)  # fmt: skip


def system_package(text: str) -> str:
    """The Debian package that a build misses; empty when the text names none."""
    for match in _HEADER.finditer(text):
        thing = next(filter(None, match.groups()))
        for sign, package in SYSTEM.items():
            if sign in thing or thing in sign:
                return package
        return f"the package that has {thing}"
    for match in _PROGRAM.finditer(text):
        if match[1] in PROGRAMS:
            return PROGRAMS[match[1]]
    return ""


def of_build(text: str) -> Reason:
    """Why an installation failed."""
    if system_package(text):
        return Reason.SYSTEM_PACKAGE
    return next((reason for reason, sign in _SIGNS if sign.search(text)), Reason.INSTALL)


def of_tests(messages: Iterable[str]) -> Reason:
    """Why most failing tests fail: the reason that at least half of their messages show."""
    counts: Counter[Reason] = Counter()
    total = 0
    for message in messages:
        total += 1
        counts[next((reason for reason, sign in _TESTS if sign.search(message)), Reason.FAILING_TESTS)] += 1
    reason, count = counts.most_common(1)[0] if counts else (Reason.FAILING_TESTS, 0)
    return reason if 2 * count >= total else Reason.FAILING_TESTS
