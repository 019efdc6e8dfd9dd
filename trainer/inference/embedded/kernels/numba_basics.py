"""What the compiled loops are made of: how numba compiles them, and e^x in vectors. Import fails where numba is not installed."""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_LOOSE = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order, but infinities keep their meaning
_options: Final[dict[str, Any]] = {
    "nogil": True,
    "boundscheck": False,
    "fastmath": _LOOSE,
    "error_model": "numpy",
}
compiled: Final[Any] = numba.njit(cache=True, **_options)
inlined: Final[Any] = numba.njit(inline="always", **_options)
# Ordinary calls, not decorators: numba has no types, and these names keep theirs.

_LEAST = np.float32(-87.0)
"""Below it e^x leaves the ordinary numbers of fp32; it counts as 0."""
_ZERO, _ONE, _HALF = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_E6, _E5, _E4 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E3, _E2 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


def _as_float(typing: Any, bits: Any) -> Any:
    """The fp32 number of 32 bits."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), emit


as_float: Final[Any] = intrinsic(_as_float)


def _exp(x: Any) -> Any:
    """e^x for x <= 0, to the last bit or two, in arithmetic that compilers turn into vectors.

    Polynomial of the Cephes library: e^x = 2^n · e^r with |r| <= ln 2 / 2.
    """
    y = max(x, _LEAST)
    n = np.floor(y * _LOG2E + _HALF)
    r = y - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((_E6 * r + _E5) * r + _E4) * r + _E3) * r + _E2) * r + _HALF
    value = (p * r * r + r + _ONE) * as_float((np.int32(n) + _BIAS) << _MANTISSA)
    return value if x >= _LEAST else _ZERO


exp = inlined(_exp)
