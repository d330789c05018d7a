"""Vectors of the processor as numba types, eight float64 numbers or sixteen int32 numbers, and operations on them.

Loops over few tokens or over parts of a row are too short for the compiler to turn them into vector instructions itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

__all__ = [
    "INTEGERS", "LANES", "at_least", "both", "choose", "distance", "integers_from", "maximum", "minimum", "minus", "plus", "read",
    "read_integers", "read_truths", "spread", "spread_integer", "times", "transposed", "turn", "write", "write_integers",
]  # fmt: skip

LANES = 8
"""Lanes of a vector of float64 numbers."""
INTEGERS = 16
"""Lanes of a vector of int32 numbers."""

_BIT, _INT8, _INT32, _INT64, _DOUBLE = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()


class _Vector(types.Type):
    def __init__(self, element: Any, lanes: int) -> None:
        self.vector = ir.VectorType(element, lanes)
        super().__init__(name=f"{lanes} × {element}")


_numbers, _integers = _Vector(_DOUBLE, LANES), _Vector(_INT32, INTEGERS)
_truths = {vector.vector.count: _Vector(_BIT, vector.vector.count) for vector in (_numbers, _integers)}


@register_model(_Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Vector) -> None:
        super().__init__(manager, kind, kind.vector)


def _operation(build: Callable[..., Any], *, result: Callable[[_Vector], _Vector] = lambda kind: kind) -> Any:
    """A function of two vectors of one kind that compiled code can call."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return build(builder, *arguments)

    return intrinsic(lambda typing, x, y: (result(x)(x, y), generate))


def _floating(x: Any) -> bool:
    return x.type.element == _DOUBLE


def _compare(builder: Any, comparison: str, x: Any, y: Any) -> Any:
    return (builder.fcmp_ordered if _floating(x) else builder.icmp_signed)(comparison, x, y)


def _distance(builder: Any, x: Any, y: Any) -> Any:
    bits = ir.VectorType(_INT64, LANES)
    without_sign = builder.and_(builder.bitcast(builder.fsub(x, y), bits), ir.Constant(bits, [2**63 - 1] * LANES))
    return builder.bitcast(without_sign, x.type)


plus = _operation(lambda builder, x, y: (builder.fadd if _floating(x) else builder.add)(x, y))
minus = _operation(lambda builder, x, y: (builder.fsub if _floating(x) else builder.sub)(x, y))
times = _operation(lambda builder, x, y: builder.fmul(x, y))
distance = _operation(_distance)
maximum = _operation(lambda builder, x, y: builder.select(_compare(builder, ">", x, y), x, y))
minimum = _operation(lambda builder, x, y: builder.select(_compare(builder, "<", x, y), x, y))
at_least = _operation(lambda builder, x, y: _compare(builder, ">=", x, y), result=lambda kind: _truths[kind.vector.count])
both = _operation(lambda builder, x, y: builder.and_(x, y))


@intrinsic
def choose(typing: Any, truth: Any, x: Any, y: Any) -> Any:
    """x where the truth holds, y elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return x(truth, x, y), generate


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, value, _INT32(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INT32, vector.count), [0] * vector.count))


@intrinsic
def spread(typing: Any, x: Any) -> Any:
    """The number x in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0], _numbers.vector)

    return _numbers(types.float64), generate


@intrinsic
def spread_integer(typing: Any, x: Any) -> Any:
    """The integer x in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0], _integers.vector)

    return _integers(types.int32), generate


@intrinsic
def integers_from(typing: Any, x: Any) -> Any:
    """x, x + 1, ... in the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.add(_spread(builder, arguments[0], _integers.vector), ir.Constant(_integers.vector, list(range(INTEGERS))))

    return _integers(types.int32), generate


def _place(context: Any, builder: Any, kind: Any, array: Any, entry: Any, vector: Any) -> Any:
    """Pointer to the vector that begins at this entry of a C-contiguous array, counted from its start."""
    return builder.bitcast(builder.gep(context.make_array(kind)(context, builder, array).data, [entry]), vector.as_pointer())


def _load(context: Any, builder: Any, kind: Any, array: Any, entry: Any, vector: Any) -> Any:
    value = builder.load(_place(context, builder, kind, array, entry, vector))
    value.align = 1
    return value


def _store(context: Any, builder: Any, kind: Any, array: Any, entry: Any, value: Any) -> None:
    builder.store(value, _place(context, builder, kind, array, entry, value.type)).align = 1


@intrinsic
def read(typing: Any, array: Any, row: Any) -> Any:
    """array[row] of a C-contiguous array of float64 of shape (rows, LANES)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, row = arguments
        return _load(context, builder, signature.args[0], array, builder.mul(row, row.type(LANES)), _numbers.vector)

    return _numbers(array, types.intp), generate


@intrinsic
def write(typing: Any, array: Any, row: Any, value: Any) -> Any:
    """array[row] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, row, value = arguments
        _store(context, builder, signature.args[0], array, builder.mul(row, row.type(LANES)), value)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def read_integers(typing: Any, array: Any, entry: Any) -> Any:
    """INTEGERS entries of a C-contiguous array of int32 or uint16, from this entry on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = ir.IntType(signature.args[0].dtype.bitwidth)
        value = _load(context, builder, signature.args[0], *arguments, ir.VectorType(element, INTEGERS))
        return value if element == _INT32 else builder.zext(value, _integers.vector)

    return _integers(array, types.intp), generate


@intrinsic
def write_integers(typing: Any, array: Any, entry: Any, value: Any) -> Any:
    """INTEGERS entries of a C-contiguous array of int32, from this entry on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(context, builder, signature.args[0], *arguments)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic
def read_truths(typing: Any, array: Any, entry: Any) -> Any:
    """INTEGERS entries of a C-contiguous array of bool, from this entry on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = _load(context, builder, signature.args[0], *arguments, ir.VectorType(_INT8, INTEGERS))
        return builder.icmp_unsigned("!=", value, value.type([0] * INTEGERS))

    return _truths[INTEGERS](array, types.intp), generate


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns of a square of as many rows as they are wide, a power of two: interleave its halves log2 times."""
    side = len(rows)
    half, index = side // 2, ir.VectorType(_INT32, side)
    orders = [ir.Constant(index, [lane for k in range(first, first + half) for lane in (k, side + k)]) for first in (0, half)]
    for _ in range(side.bit_length() - 1):
        rows = [builder.shuffle_vector(rows[k // 2], rows[k // 2 + half], orders[k % 2]) for k in range(side)]
    return rows


@intrinsic
def turn(typing: Any, source: Any, first: Any, column: Any, target: Any) -> Any:
    """target[column + r, l] = source[first + l, column + r] for r, l < LANES."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, first, column, target = arguments
        width = builder.extract_value(context.make_array(signature.args[0])(context, builder, source).shape, 1)
        rows = []
        for lane in range(LANES):
            entry = builder.add(builder.mul(builder.add(first, first.type(lane)), width), column)
            rows.append(_load(context, builder, signature.args[0], source, entry, _numbers.vector))
        for r, value in enumerate(transposed(builder, rows)):
            entry = builder.mul(builder.add(column, column.type(r)), column.type(LANES))
            _store(context, builder, signature.args[3], target, entry, value)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target), generate
