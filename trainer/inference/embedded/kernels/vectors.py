"""Vectors of 16 fp32 numbers for the compiled loops: where sums over rows are wanted, the compiler finds none by itself.

What they compute does not depend on the machine's width (a narrower one takes several instructions), nor on what else is
in a loop: nothing is reordered.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

WIDTH = 16
_IR = ir.VectorType(ir.FloatType(), WIDTH)
_INDEX = ir.IntType(32)


class Vector(types.Type):
    def __init__(self) -> None:
        super().__init__(name="float32x16")


_vector: Final = Vector()


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _IR)


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), ir.PointerType(_IR))


def _load(typing: Any, array: Any, at: Any) -> Any:
    """16 numbers of a contiguous array from element `at` on, counted from its beginning whatever its shape."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], *arguments), align=4)

    return _vector(array, types.int64), emit


def _store(typing: Any, array: Any, at: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], place, align=4)
        return context.get_dummy_value()

    return types.none(array, types.int64, _vector), emit


def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Element `at` is read soon: it may come into the second cache meanwhile. Behind the array it is ignored."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _INDEX, _INDEX, _INDEX])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(call, [place, *(ir.Constant(_INDEX, value) for value in (0, 2, 1))])
        return context.get_dummy_value()

    return types.none(array, types.int64), emit


def _everywhere(builder: Any, number: Any) -> Any:
    empty = ir.Constant(_IR, ir.Undefined)
    one = builder.insert_element(empty, number, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(_INDEX, WIDTH), [0] * WIDTH))


def _splat(typing: Any, number: Any) -> Any:
    """The same number 16 times."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _everywhere(builder, arguments[0])

    return _vector(types.float32), emit


def _spread(typing: Any, array: Any, at: Any) -> Any:
    """Element `at` of a contiguous array 16 times, counted from its beginning whatever its shape.

    `splat(array[at])` would look for indices below zero first, in more instructions than the products around it.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return _everywhere(builder, builder.load(builder.gep(data, [arguments[1]])))

    return _vector(array, types.int64), emit


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_IR, [_IR, _IR, _IR])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v16f32"), arguments)

    return _vector(_vector, _vector, _vector), emit


def _larger(typing: Any, a: Any, b: Any) -> Any:
    """The larger number of each pair; `b` where one is none."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _vector(_vector, _vector), emit


def _folding(width: int) -> Any:
    """Adds lanes that are `width` apart: of `a` where the lane's bit is clear, of `b` where it is set."""

    def fold(typing: Any, a: Any, b: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = range(WIDTH)
            near = [WIDTH + lane if lane & width else lane for lane in lanes]
            far = [WIDTH + (lane ^ width) if lane & width else lane ^ width for lane in lanes]
            kind = ir.VectorType(_INDEX, WIDTH)
            parts = (builder.shuffle_vector(*arguments, ir.Constant(kind, chosen)) for chosen in (near, far))
            return builder.fadd(*parts)

        return _vector(_vector, _vector), emit

    return intrinsic(fold)


load: Final[Any] = intrinsic(_load)
store: Final[Any] = intrinsic(_store)
prefetch: Final[Any] = intrinsic(_prefetch)
splat: Final[Any] = intrinsic(_splat)
spread: Final[Any] = intrinsic(_spread)
fma: Final[Any] = intrinsic(_fma)
larger: Final[Any] = intrinsic(_larger)
fold8, fold4, fold2, fold1 = (_folding(width) for width in (8, 4, 2, 1))
