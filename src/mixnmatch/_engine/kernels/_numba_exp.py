"""The compiled exponential: a polynomial on [-ln 2 / 2, ln 2 / 2] times a power of two put together from its bits.

The compiler can run it on whole vectors. It agrees with the exact one to a few units in the last place.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

# Divisions are as in NumPy: a check for zero would keep the compiler from running them on vectors.
JIT: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}


_A2, _A3, _A4, _A5, _A6, _A7 = (np.float32(1 / factorial(k)) for k in range(2, 8))
_B2, _B3, _B4, _B5, _B6, _B7, _B8, _B9, _B10, _B11, _B12, _B13 = (1 / factorial(k) for k in range(2, 14))
# ln 2 in two parts, the first with trailing zero bits, so that k * ln 2 loses nothing.
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(np.log(2.0) - 0.693359375)
_LN2_HIGH64 = float(np.float32(np.log(2.0)))
_LN2_LOW64 = float(np.log(np.longdouble(2)) - np.longdouble(_LN2_HIGH64))
_LOG2E32, _LOG2E64 = np.float32(1 / np.log(2.0)), 1 / np.log(2.0)
_TO_LAST_BITS = 1.5 * 2.0**52
_LOWEST32, _LOWEST64 = np.float32(-87.0), -708.0


@intrinsic  # type: ignore[untyped-decorator]
def _float32_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def _float64_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _bits_of_float64(context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@njit(**JIT)  # type: ignore[untyped-decorator]
def exp32(x: Any) -> Any:
    x = max(x, _LOWEST32)
    k = np.floor(x * _LOG2E32 + np.float32(0.5))
    r = (x - k * _LN2_HIGH32) - k * _LN2_LOW32
    p = np.float32(1) + r * (np.float32(1) + r * (_A2 + r * (_A3 + r * (_A4 + r * (_A5 + r * (_A6 + r * _A7))))))
    return p * _float32_of_bits(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)))


@njit(**JIT)  # type: ignore[untyped-decorator]
def exp64(x: Any) -> Any:
    x = max(x, _LOWEST64)
    k = np.floor(x * _LOG2E64 + 0.5)
    r = (x - k * _LN2_HIGH64) - k * _LN2_LOW64
    high = _B7 + r * (_B8 + r * (_B9 + r * (_B10 + r * (_B11 + r * (_B12 + r * _B13)))))
    p = 1.0 + r * (1.0 + r * (_B2 + r * (_B3 + r * (_B4 + r * (_B5 + r * (_B6 + r * high))))))
    # There is no vector instruction from float64 to int64: beside this number k is in the last bits.
    return p * _float64_of_bits((_bits_of_float64(k + _TO_LAST_BITS) + np.int64(1023)) << np.int64(52))


def exp(x: Any) -> Any:
    """Exponential of a number not above 0, in its own precision."""
    return np.exp(x)


@overload(exp, jit_options=JIT)  # type: ignore[untyped-decorator]
def _overload_exp(x: Any) -> Any:
    chosen = exp32 if x == types.float32 else exp64

    def implementation(x: Any) -> Any:
        return chosen(x)

    return implementation


@njit(**JIT)  # type: ignore[untyped-decorator]
def row_max(row: Any) -> Any:
    top = row[0]
    for j in range(row.shape[0]):
        top = max(top, row[j])
    return top
