r"""All pairs of rows at once, in 16-bit integers: a filter that leaves few pairs to be looked at in float64.

With q_ik = floor(S a_ik) and Q_i = sum_k q_ik, the distance of two rows of integers is

.. math:: \ell_{ij} = \sum_k |q_{ik} - q_{jk}| = Q_i + Q_j - 2 \sum_k \min(q_{ik}, q_{jk}),

exactly: an entry costs one minimum and one addition, many lanes an instruction.  No sum exceeds 16 bits, since a row
sums to at most 1.03 and 1.03 S < 2^16.  Each S a_ik exceeds q_ik by less than 1 (up to the rounding of S a_ik, at most
2^-37), so S |a_ik - a_jk| differs from |q_ik - q_jk| by less than 1 + 2^-36, and for rows of length n

.. math:: \bigl|\ell_{ij} - 2 S\, \mathrm{TV}_{ij}\bigr| < n + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from dobrushin._lanes import transposed

__all__ = ["SCALE", "SIDE", "TILE", "keep_mutual", "overlaps", "padded", "quantize", "quantize_finer"]

SCALE = 63488.0
SIDE = 16
"""Rows in the lanes of a vector, which holds two integers of each."""
TILE = 4
"""Rows that meet such a vector at a time."""

_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


@njit(nogil=True, cache=True)
def padded(n):
    """Number of rows and columns of the integer matrix: what is added is 0 and adds nothing to a sum of minima."""
    return -(-n // SIDE) * SIDE, -(-n // (2 * SIDE)) * 2 * SIDE


@njit(nogil=True, cache=True)
def quantize_finer(M, scale, q):
    """Fill the first rows and columns of q with floor(scale M), at most 2^16 - 1."""
    n = M.shape[0]
    for i in range(n):
        for k in range(n):
            q[i, k] = np.int32(min(M[i, k] * scale, 65535.0))


@njit(nogil=True, cache=True)
def quantize(M, q, sums):
    """Fill the first rows and columns of q with floor(S M), and their sums."""
    n = M.shape[0]
    for i in range(n):
        total = np.int32(0)
        for k in range(n):
            v = np.int32(M[i, k] * SCALE)
            q[i, k] = v
            total += v
        sums[i] = total


def _lanes(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT32, len(numbers)), numbers)


def _array(context: Any, builder: Any, kind: Any, value: Any) -> tuple[Any, Any]:
    """Start and row length of a C-contiguous array."""
    array = context.make_array(kind)(context, builder, value)
    return array.data, builder.extract_value(array.shape, kind.ndim - 1)


def _vector_at(builder: Any, start: Any, width: Any, row: Any, column: Any, kind: Any) -> Any:
    """Pointer to the vector that begins at (row, column)."""
    return builder.bitcast(builder.gep(start, [builder.add(builder.mul(row, width), column)]), kind.as_pointer())


def _load(builder: Any, place: Any) -> Any:
    value = builder.load(place)
    value.align = 1
    return value


def _store(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, place).align = 1


@intrinsic
def _turn(typing: Any, q: Any, i: Any, h: Any, turned: Any) -> Any:
    """turned[(i / SIDE) H + h + c, r] = q[i + r, h + c] for r, c < SIDE, where H is the row length of q; in 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, width = _array(context, builder, signature.args[0], arguments[0])
        target, _ = _array(context, builder, signature.args[3], arguments[3])
        vector, side = ir.VectorType(_INT32, SIDE), _INT64(SIDE)
        i, h = arguments[1:3]
        rows = [_load(builder, _vector_at(builder, source, width, builder.add(i, _INT64(r)), h, vector)) for r in range(SIDE)]
        first = builder.add(builder.mul(builder.udiv(i, side), width), h)
        for c, column in enumerate(transposed(builder, rows)):
            _store(builder, column, _vector_at(builder, target, side, builder.add(first, _INT64(c)), _INT64(0), vector))
        return context.get_dummy_value()

    return types.void(q, types.intp, types.intp, turned), generate


@intrinsic
def _tile(typing: Any, q: Any, turned: Any, i: Any, block: Any, out: Any) -> Any:
    """out[i + r, SIDE block + c] = sum_k min(q_ik, q_jk) of these rows, for r < TILE and c < SIDE.

    A word of 32 bits holds two neighbouring columns; their sums grow side by side and meet at the end, at most 2^16 - 1.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, width = _array(context, builder, signature.args[0], arguments[0])
        other, _ = _array(context, builder, signature.args[1], arguments[1])
        target, stride = _array(context, builder, signature.args[4], arguments[4])
        words, shorts = ir.VectorType(_INT32, SIDE), ir.VectorType(_INT16, 2 * SIDE)
        nothing, side = ir.Constant(words, ir.Undefined), _INT64(SIDE)
        saturating = ir.FunctionType(shorts, [shorts, shorts])
        add = cgutils.get_or_insert_function(builder.module, saturating, f"llvm.uadd.sat.v{2 * SIDE}i16")
        i, block = arguments[2:4]
        rows = [builder.add(i, _INT64(r)) for r in range(TILE)]
        starts = [builder.gep(source, [builder.mul(row, width)]) for row in rows]
        first = builder.mul(block, width)

        before, body, after = builder.block, builder.append_basic_block("words"), builder.append_basic_block("sums")
        builder.branch(body)
        builder.position_at_end(body)
        h = builder.phi(_INT64)
        sums = [builder.phi(shorts) for _ in rows]
        right = _load(builder, _vector_at(builder, other, side, builder.add(first, h), _INT64(0), shorts))
        grown = []
        for start, so_far in zip(starts, sums, strict=True):
            word = builder.insert_element(nothing, builder.load(builder.gep(start, [h])), _INT32(0))
            left = builder.bitcast(builder.shuffle_vector(word, nothing, _lanes([0] * SIDE)), shorts)
            smaller = builder.select(builder.icmp_unsigned("<", left, right), left, right)
            grown.append(builder.call(add, [so_far, smaller]))
        following = builder.add(h, _INT64(1))
        h.add_incoming(_INT64(0), before)
        h.add_incoming(following, body)
        for phi, new in zip(sums, grown, strict=True):
            phi.add_incoming(shorts(None), before)
            phi.add_incoming(new, body)
        builder.cbranch(builder.icmp_unsigned("<", following, width), body, after)

        builder.position_at_end(after)
        for row, pair in zip(rows, grown, strict=True):
            word = builder.bitcast(pair, words)
            most = _lanes([2**16 - 1] * SIDE)
            both = builder.add(builder.and_(word, most), builder.lshr(word, _lanes([16] * SIDE)))
            both = builder.select(builder.icmp_unsigned("<", both, most), both, most)
            total = builder.trunc(both, ir.VectorType(_INT16, SIDE))
            _store(builder, total, _vector_at(builder, target, stride, row, builder.mul(block, side), total.type))
        return context.get_dummy_value()

    return types.void(q, turned, types.intp, types.intp, out), generate


@njit(nogil=True, cache=True)
def overlaps(q, out):
    """Fill the upper triangle of out with sum_k min(q_ik, q_jk), at most 2^16 - 1; the lower one is left with anything."""
    words = q.view(np.uint32)
    rows, width = words.shape
    turned = np.empty((rows // SIDE * width, SIDE), np.uint32)
    for i in range(0, rows, SIDE):
        for h in range(0, width, SIDE):
            _turn(words, i, h, turned)
    for block in range(rows // SIDE):
        for i in range(0, SIDE * (block + 1), TILE):
            _tile(words, turned, i, block, out)


@intrinsic
def _meet(typing: Any, x: Any, i: Any, j: Any) -> Any:
    """x[i + r, j + c] &= x[j + c, i + r] for r, c < SIDE, in bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, width = _array(context, builder, signature.args[0], arguments[0])
        vector = ir.VectorType(_INT8, SIDE)
        i, j = arguments[1:3]
        lower = [_load(builder, _vector_at(builder, start, width, builder.add(j, _INT64(c)), i, vector)) for c in range(SIDE)]
        places = [_vector_at(builder, start, width, builder.add(i, _INT64(r)), j, vector) for r in range(SIDE)]
        upper = [_load(builder, place) for place in places]
        for place, one, other in zip(places, upper, transposed(builder, lower), strict=True):
            _store(builder, builder.and_(one, other), place)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp), generate


@njit(nogil=True, cache=True)
def keep_mutual(x, n):
    """x[i, j] &= x[j, i] for i < j < n; x has room for whole squares of SIDE rows, its lower triangle is left with anything."""
    for i in range(0, n, SIDE):
        for j in range(i, n, SIDE):
            _meet(x, i, j)
