"""Recipes of ONNX Runtime's own operators."""

from __future__ import annotations

import numpy as np

from .graph import BOOL, F32, I32, I64, U8, Graph
from .layers import batch_size, byte_matrices, image, parameter, scale_and_point, some, window
from .recipes import recipe

MS = "com.microsoft"


@recipe("Gelu", "QuickGelu", "FastGelu", "BiasGelu", domain=MS, weight=0.4)
def gelu(g: Graph, op):
    x = g.pick((F32,), range(1, 5))
    bias = (
        [parameter(g, x.dtype, x.shape[-1:])]
        if op == "BiasGelu" or op == "FastGelu" and g.random.random() < 0.5
        else []
    )
    return g.add(op, [x, *bias], domain=MS)


@recipe("FusedMatMul", domain=MS)
def fused_matmul(g: Graph):
    x = g.pick((F32,), range(2, 5))
    options = some(g, transA=g.random.choice([0, 1]), transB=g.random.choice([0, 1]), alpha=0.5)
    inner = x.shape[-2 if options.get("transA") else -1]
    columns = g.size()
    y = g.pick([F32], shape=(columns, inner) if options.get("transB") else (inner, columns))
    return g.add("FusedMatMul", [x, y], domain=MS, **options)


@recipe("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS, weight=0.7)
def skip_layer_normalization(g: Graph, op):
    x = g.pick(
        (F32,),
        [3],
        lambda v: v.array.size > 0 and v.shape[-1] > 2,
        otherwise=(max(1, g.palette[0]), g.random.randint(1, 6), g.random.choice([4, 5, 8])),
    )
    width = x.shape[-1:]
    beta = [parameter(g, F32, width)] if op == "SkipLayerNormalization" else []
    bias = parameter(g, F32, width) if g.random.random() < 0.5 else None
    outputs = [True, False, False, True] if g.random.random() < 0.3 else 1
    return g.add(
        op, [x, g.pick([F32], shape=x.shape), parameter(g, F32, width), *beta, bias], outputs, domain=MS, epsilon=0.01
    )


@recipe("SimplifiedLayerNormalization", weight=0.7)
def simplified_layer_normalization(g: Graph):
    x = g.pick((F32,), range(1, 5), lambda v: v.array.size > 0)
    return g.add("SimplifiedLayerNormalization", [x, parameter(g, F32, x.shape[-1:])], axis=-1, epsilon=0.01)


@recipe("EmbedLayerNormalization", domain=MS, weight=0.5)
def embed_layer_normalization(g: Graph):
    batch, steps, width = batch_size(g, 8), g.random.randint(1, 6), g.random.choice([4, 6, 8])
    ids = g.source(I32, (batch, steps), 0, 8)
    segments = g.source(I32, (batch, steps), 0, 1) if g.random.random() < 0.5 else None
    tables = [g.source(F32, (9, width)), g.source(F32, (8, width)), g.source(F32, (2, width)) if segments else None]
    mask = g.source(I32, (batch, steps), 0, 1) if g.random.random() < 0.4 else None
    return g.add(
        "EmbedLayerNormalization",
        [ids, segments, *tables, g.source(F32, (width,)), g.source(F32, (width,)), mask],
        [True, mask is not None],
        domain=MS,
        epsilon=0.01,
    )


@recipe("MultiHeadAttention", domain=MS, weight=0.7)
def multi_head_attention(g: Graph):
    batch, steps, keys, heads, width = (
        batch_size(g),
        g.random.randint(1, 5),
        g.random.randint(1, 6),
        g.random.randint(1, 4),
        g.random.choice([2, 4]),
    )
    q, k, v = (g.pick([F32], shape=(batch, s, heads * width)) for s in (steps, keys, keys))
    bias = parameter(g, F32, (3 * heads * width,)) if g.random.random() < 0.5 else None
    mask = None
    if g.random.random() < 0.4:
        mask = g.source(
            I32,
            (batch, keys),
            array=np.maximum(g.numbers.integers(0, 2, (batch, keys)), np.arange(keys) == 0).astype(np.int32),
        )
    return g.add("MultiHeadAttention", [q, k, v, bias, mask], domain=MS, num_heads=heads)


@recipe("Attention", domain=MS, weight=0.7)
def attention(g: Graph):
    batch, steps, heads, width = (
        batch_size(g),
        g.random.randint(1, 5),
        g.random.randint(1, 4),
        g.random.choice([2, 4]),
    )
    inner = g.random.choice([3, 4, 8])
    x = g.pick([F32], shape=(batch, steps, inner))
    w = parameter(g, F32, (inner, 3 * heads * width), -0.7, 0.7)
    options = {"unidirectional": 1} if g.random.random() < 0.3 else {}
    return g.add("Attention", [x, w, parameter(g, F32, (3 * heads * width,))], domain=MS, num_heads=heads, **options)


@recipe("GroupQueryAttention", domain=MS, weight=0.7)
def group_query_attention(g: Graph):
    batch, steps, kv, group, width = (
        batch_size(g),
        g.random.randint(1, 5),
        g.random.randint(1, 3),
        g.random.choice([1, 2]),
        8,
    )
    q = g.pick([F32], shape=(batch, steps, kv * group * width))
    k, v = (g.pick([F32], shape=(batch, steps, kv * width)) for _ in range(2))
    return g.add(
        "GroupQueryAttention",
        [q, k, v, None, None, g.constant([steps - 1] * batch, np.int32), g.constant(steps, np.int32)],
        [True, True, True],
        domain=MS,
        num_heads=kv * group,
        kv_num_heads=kv,
    )


@recipe("RotaryEmbedding", domain=MS, weight=0.5)
def rotary_embedding(g: Graph):
    batch, heads, steps, width = (
        batch_size(g),
        g.random.randint(1, 4),
        g.random.randint(1, 6),
        g.random.choice([4, 8]),
    )
    x = g.pick([F32], shape=(batch, heads, steps, width))
    positions = g.source(I64, (batch, steps), 0, 7)
    return g.add(
        "RotaryEmbedding",
        [x, positions, *(g.source(F32, (8, width // 2), -1, 1) for _ in range(2))],
        domain=MS,
        **some(g, interleaved=g.random.choice([0, 1])),
    )


@recipe("MatMulNBits", domain=MS, weight=0.5)
def matmul_nbits(g: Graph):
    columns, depth, block = g.random.choice([2, 4, 8]), g.random.choice([16, 32, 40]), 16
    blocks = -(-depth // block)
    x = g.pick([F32], shape=(*g.shape((1, 2)), depth))
    packed = g.source(U8, (columns, blocks, block // 2), 0, 255, kind="initializer")
    scales = g.source(F32, (columns * blocks,), 0.05, 0.2, kind="initializer")
    points = g.source(U8, (columns * -(-blocks // 2),), 0, 255, kind="initializer") if g.random.random() < 0.5 else None
    return g.add("MatMulNBits", [x, packed, scales, points], domain=MS, N=columns, K=depth, bits=4, block_size=block)


@recipe("QLinearAdd", "QLinearMul", domain=MS, weight=0.4)
def qlinear_binary(g: Graph, op):
    x = g.pick((U8,), range(1, 5))
    y = g.match(x, into=True)
    return g.add(op, [x, *scale_and_point(g, U8), y, *scale_and_point(g, U8), *scale_and_point(g, U8)], domain=MS)


@recipe("QuantizeLinear", domain=MS, weight=0.3)
def quantize_linear(g: Graph):
    return g.add("QuantizeLinear", [g.pick((F32,), range(5)), *scale_and_point(g, U8)], domain=MS)


@recipe("DequantizeLinear", domain=MS, weight=0.3)
def dequantize_linear(g: Graph):
    return g.add("DequantizeLinear", [g.pick((U8,), range(5)), *scale_and_point(g, U8)], domain=MS)


@recipe("MatMulIntegerToFloat", domain=MS, weight=0.3)
def matmul_integer_to_float(g: Graph):
    x, y = byte_matrices(g)
    (a, p), (b, q) = scale_and_point(g, U8), scale_and_point(g, U8)
    return g.add("MatMulIntegerToFloat", [x, y, a, b, p, q], domain=MS)


# Operators that ONNX Runtime's quantizers and optimizers write


@recipe("FusedConv", domain=MS, weight=0.4)
def fused_conv(g: Graph):
    x = image(g, (F32,), (2,))
    options = window(g, x)
    out = g.random.randint(1, 4)
    w = parameter(g, F32, (out, x.shape[1], *options["kernel_shape"]), -0.7, 0.7)
    activation = g.random.choice(["Relu", "Tanh", "Sigmoid"])
    return g.add("FusedConv", [x, w, parameter(g, F32, (out,))], domain=MS, activation=activation, **options)


@recipe("FusedGemm", domain=MS, weight=0.4)
def fused_gemm(g: Graph):
    x = g.pick([F32], [2])
    columns = max(1, g.size())
    operands = [x, parameter(g, F32, (x.shape[1], columns)), parameter(g, F32, (columns,))]
    return g.add("FusedGemm", operands, domain=MS, activation=g.random.choice(["Relu", "Tanh", "Sigmoid"]))


@recipe("QGemm", domain=MS, weight=0.4)
def qgemm(g: Graph):
    x, y = byte_matrices(g, [2], kind="initializer")
    c = g.source(I32, y.shape[1:], -50, 50, kind="initializer") if g.random.random() < 0.5 else None
    scales = [scale_and_point(g, U8) for _ in range(3)]
    return g.add("QGemm", [x, *scales[0], y, *scales[1], c, *scales[2]], domain=MS)


@recipe("QLinearLeakyRelu", "QLinearSigmoid", domain=MS, weight=0.3)
def qlinear_unary(g: Graph, op):
    x = g.pick((U8,), range(1, 5))
    return g.add(op, [x, *scale_and_point(g, U8), *scale_and_point(g, U8)], domain=MS)


@recipe("QLinearConcat", domain=MS, weight=0.3)
def qlinear_concat(g: Graph):
    x = g.pick((U8,), range(1, 5))
    parts = [x] + [g.pick([U8], shape=x.shape) for _ in range(g.random.choice([1, 2]))]
    operands = [v for part in parts for v in (part, *scale_and_point(g, U8))]
    return g.add("QLinearConcat", [*scale_and_point(g, U8), *operands], domain=MS, axis=g.axis(x.rank))


@recipe("QLinearGlobalAveragePool", domain=MS, weight=0.3)
def qlinear_global_average_pool(g: Graph):
    x = image(g, (U8,), (2,), least=1)
    return g.add("QLinearGlobalAveragePool", [x, *scale_and_point(g, U8), *scale_and_point(g, U8)], domain=MS)


@recipe("QLinearWhere", domain=MS, weight=0.3)
def qlinear_where(g: Graph):
    x = g.pick((U8,), range(1, 5))
    pairs = [v for operand in (x, g.match(x, into=True)) for v in (operand, *scale_and_point(g, U8))]
    return g.add("QLinearWhere", [g.match(x, BOOL, into=True), *pairs, *scale_and_point(g, U8)], domain=MS)


@recipe("DynamicQuantizeMatMul", domain=MS, weight=0.4)
def dynamic_quantize_matmul(g: Graph):
    x = g.pick([F32], range(2, 4), lambda v: v.array.size > 0)
    columns = max(1, g.size())
    y = g.source(U8, (x.shape[-1], columns), kind="initializer")
    bias = parameter(g, F32, (columns,)) if g.random.random() < 0.5 else None
    return g.add("DynamicQuantizeMatMul", [x, y, *scale_and_point(g, U8), bias], domain=MS)


@recipe("NhwcMaxPool", domain=MS, weight=0.3)
def nhwc_max_pool(g: Graph):
    x = g.source(
        U8, (batch_size(g), *(g.random.randint(3, 6) for _ in range(2)), g.random.randint(1, 4))
    )
    return g.add("NhwcMaxPool", [x], exact=True, domain=MS, kernel_shape=[2, 2], strides=[g.random.choice([1, 2])] * 2)
