"""Training's loops of half precision, compiled by numba: a row is read and written once each way. Import fails without numba.

Arrays of bfloat16 are 16 bits a number here: the upper ones of a float32. Formulas and shape suffixes as in `rms_norm.py`,
`swiglu.py` and `fused_linear_logprob.py`; R rows, P parts of them, F the width of a gated layer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload

from trainer.inference.embedded.kernels.numba_basics import as_float, compiled, exp, inlined

BUILT_ON = "d5296a3a74ba61a2"
"""Digest of the file compiled into these loops; see `numba_loops.BUILT_ON`."""

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_HALF_BITS, _BELOW_HALF, _LAST, _NAN = np.int32(16), np.int32(0x7FFF), np.int32(1), np.int32(0x7FC0)
_SIGN, _REST = np.int16(15), np.int16(0x7FFF)


def _as_bits(typing: Any, number: Any) -> Any:
    """The 32 bits of a fp32 number."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), emit


as_bits: Final[Any] = intrinsic(_as_bits)


def wide(number: Any) -> Any:
    """fp32 of what an array of either precision holds."""


def _wide(number: Any) -> Any:
    if isinstance(number, types.Integer):

        def from_bits(number: Any) -> Any:
            return as_float(np.int32(number) << _HALF_BITS)

        return from_bits

    def as_it_is(number: Any) -> Any:
        return number

    return as_it_is


overload(wide, inline="always")(_wide)


def _half(number: Any) -> Any:
    """The nearest number of half precision, of two the even one."""
    bits = as_bits(number)
    rounded = (bits + _BELOW_HALF + ((bits >> _HALF_BITS) & _LAST)) >> _HALF_BITS
    return np.uint16(rounded if number == number else _NAN)


half = inlined(_half)


def put(array: Any, at: Any, number: Any) -> None:
    """Stores a fp32 number in the array's precision."""


def _put(array: Any, at: Any, number: Any) -> Any:
    if isinstance(array.dtype, types.Integer):

        def rounded(array: Any, at: Any, number: Any) -> None:
            array[at] = half(number)

        return rounded

    def whole(array: Any, at: Any, number: Any) -> None:
        array[at] = number

    return whole


overload(put, inline="always")(_put)


def _norm_forward(x_RD: Any, weight_D: Any, eps: Any, out_RD: Any, scale_R: Any) -> None:
    """Fills `out_RD`, of half precision, and `scale_R`."""
    width = x_RD.shape[1]
    for r in range(x_RD.shape[0]):
        x, out = x_RD[r], out_RD[r]
        squares = _ZERO
        for d in range(width):
            value = wide(x[d])
            squares += value * value
        scale = _ONE / np.sqrt(squares / np.float32(width) + eps)
        scale_R[r] = scale
        for d in range(width):
            out[d] = half(wide(x[d]) * scale * weight_D[d])


norm_forward = compiled(_norm_forward)


def _norm_backward(gradient_RD: Any, x_RD: Any, weight_D: Any, scale_R: Any, of_x_RD: Any, of_weight_PD: Any) -> None:
    """Fills `of_x_RD`; adds what each part of the rows gives for the weight: sums of fewer rows lose less."""
    rows, width = x_RD.shape
    each = (rows + of_weight_PD.shape[0] - 1) // of_weight_PD.shape[0]
    for r in range(rows):
        gradient, x, of_x, of_weight, scale = gradient_RD[r], x_RD[r], of_x_RD[r], of_weight_PD[r // each], scale_R[r]
        both = _ZERO
        for d in range(width):
            product = wide(gradient[d]) * wide(x[d]) * scale
            of_weight[d] += product
            both += product * weight_D[d]
        mean = both / np.float32(width)
        for d in range(width):
            put(of_x, d, (wide(gradient[d]) * weight_D[d] - wide(x[d]) * scale * mean) * scale)


norm_backward = compiled(_norm_backward)


def _largest(x_V: Any) -> Any:
    """Largest value of a bf16 row. Bits are compared as integers, which compilers turn into vectors."""
    top = np.int16(-32768)
    for v in range(x_V.shape[0]):
        bits = np.int16(x_V[v])
        top = max(top, np.int16(bits ^ ((bits >> _SIGN) & _REST)))
    return wide(np.uint16(top ^ ((top >> _SIGN) & _REST)))


largest = inlined(_largest)


def _scores(
    logits_CV: Any, sharpness: Any, targets_C: Any, logprobs_C: Any, entropy_C: Any, e_V: Any, keep: Any
) -> None:
    """Fills `logprobs_C` and `entropy_C`; logits become p − 1[y], if these are kept. `e_V` is room for a row."""
    width = logits_CV.shape[1]
    for c in range(logits_CV.shape[0]):
        x, target = logits_CV[c], targets_C[c]
        top = largest(x)
        total, weighted = _ZERO, _ZERO
        for v in range(width):
            z = (wide(x[v]) - top) * sharpness
            e = exp(z)
            e_V[v] = e
            total += e
            weighted += e * z  # 0 · NaN is NaN, so that none is lost
        log_sum, share = np.float32(np.log(total)), _ONE / total
        entropy = log_sum - weighted * share
        entropy_C[c] = entropy
        logprobs_C[c] = (wide(x[target]) - top) * sharpness - log_sum if entropy == entropy else entropy
        if keep:
            for v in range(width):
                x[v] = half(e_V[v] * share)
            x[target] = half(e_V[target] * share - _ONE)


scores = compiled(_scores)


def _gate_forward(gate_RF: Any, up_RF: Any, out_RF: Any) -> None:
    """Fills `out_RF`."""
    for r in range(gate_RF.shape[0]):
        gate, up, out = gate_RF[r], up_RF[r], out_RF[r]
        for f in range(gate.shape[0]):
            a = wide(gate[f])
            e = exp(-abs(a))
            out[f] = half(a * wide(up[f]) * ((_ONE if a >= _ZERO else e) / (_ONE + e)))


gate_forward = compiled(_gate_forward)


def _gate_backward(gradient_RF: Any, gate_RF: Any, up_RF: Any, of_gate_RF: Any, of_up_RF: Any) -> None:
    """Fills `of_gate_RF` and `of_up_RF`."""
    for r in range(gate_RF.shape[0]):
        gradient, gate, up, of_gate, of_up = gradient_RF[r], gate_RF[r], up_RF[r], of_gate_RF[r], of_up_RF[r]
        for f in range(gate.shape[0]):
            a, g = wide(gate[f]), wide(gradient[f])
            e = exp(-abs(a))
            open_ = (_ONE if a >= _ZERO else e) / (_ONE + e)
            of_up[f] = half(g * a * open_)
            of_gate[f] = half(g * wide(up[f]) * open_ * (_ONE + a * (_ONE - open_)))


gate_backward = compiled(_gate_backward)
