"""com.microsoft operators, each against ONNX Runtime's CPU kernel."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import evaluate

sys.path.insert(0, str(evaluate.ROOT / "python"))

from gridloom import backend  # noqa: E402

# With --full every case is also compiled, for one device and split over two at random.
FULL = "--full" in sys.argv
onnxruntime.set_default_logger_severity(4)
NUMBER = itertools.count()


def rand(*shape, scale=1.0, seed=0):
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def check(folder, op, inputs, outputs=1, domain="com.microsoft", known=(), rtol=1e-4, atol=2e-5, compiled=False, **attributes):
    """Runs one node. `inputs` are arrays, or None if absent; those with indices in `known` are initializers. `outputs` is their number,
    or their names, empty if absent."""
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    results = [f"o{k}" for k in range(outputs)] if isinstance(outputs, int) else list(outputs)
    given = {name: value for k, (name, value) in enumerate(zip(names, inputs)) if name and k not in known}
    graph = helper.make_graph(
        [helper.make_node(op, names, results, name="n", domain=domain, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        ],
        [helper.make_tensor_value_info(name, 0, None) for name in results if name],
        [numpy_helper.from_array(inputs[k], names[k]) for k in known],
    )
    for output in graph.output:
        output.ClearField("type")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, given)
    case = evaluate.evaluate(folder / str(next(NUMBER)), model, list(given.values()))
    assert case.error is None, case.error
    outcomes = [case.imported, case.simplified]
    for mesh, strategy in [("", None), ("x=2", f"random:{next(NUMBER)}")] if FULL or compiled else []:
        program = backend.prepare(model, mesh=mesh, strategy=strategy, base=case.folder)
        outcomes.append(program.run(list(given.values())))
        program.close()
    for values in outcomes:
        for actual, want in zip(values, expected, strict=True):
            assert actual.dtype == want.dtype and actual.shape == want.shape
            np.testing.assert_allclose(actual.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)


#===---------------------------------------------------------------------------------------------===#
# Activations and normalisations
#===---------------------------------------------------------------------------------------------===#


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu(tmp_path, op):
    check(tmp_path, op, [rand(2, 5, 8, scale=3)], atol=1e-4)


def test_gelu_with_bias(tmp_path):
    check(tmp_path, "BiasGelu", [rand(2, 5, 8), rand(8)])
    check(tmp_path, "FastGelu", [rand(2, 5, 8), rand(8)])
    check(tmp_path, "QuickGelu", [rand(2, 5, 8)], alpha=1.0)


def test_simplified_layer_normalization(tmp_path):
    # ONNX Runtime has it only in the standard domain.
    check(tmp_path, "SimplifiedLayerNormalization", [rand(2, 3, 8), rand(8)], domain="", epsilon=1e-4, axis=-1)


@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_normalization(tmp_path, skip, bias):
    x, gamma, beta = rand(2, 3, 8), rand(8, seed=1), rand(8, seed=2)
    extra = [rand(8, seed=3)] if bias else []
    sums = ["o", "", "", "s"]
    check(tmp_path, "SkipLayerNormalization", [x, rand(*skip, seed=4), gamma, beta, *extra], sums, epsilon=1e-5)
    check(tmp_path, "SkipSimplifiedLayerNormalization", [x, rand(*skip, seed=4), gamma, *extra], sums, epsilon=1e-5)


@pytest.mark.parametrize("segments, mask, positions", list(itertools.product([False, True], repeat=3)))
def test_embed_layer_normalization(tmp_path, segments, mask, positions):
    ids = np.array([[1, 5, 9], [0, 2, 2]], np.int32)
    inputs = [ids, None, rand(10, 8), rand(6, 8, seed=1), None, rand(8, seed=2), rand(8, seed=3), None, None]
    if segments:
        inputs[1], inputs[4] = ids % 2, rand(2, 8, seed=4)
    if mask:
        inputs[7] = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    if positions:
        inputs[8] = np.array([[2, 3, 5]] * 2, np.int32)
    outputs = ["o", "m", "s"]
    check(tmp_path, "EmbedLayerNormalization", inputs, outputs, epsilon=1e-6)


#===---------------------------------------------------------------------------------------------===#
# Matrix products
#===---------------------------------------------------------------------------------------------===#


@pytest.mark.parametrize("a, b, flags", [
    ((2, 3, 4), (2, 4, 5), {}),
    ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1, "alpha": 0.5}),
    ((3, 2, 4), (4, 2, 5), {"transBatchA": 1, "transBatchB": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
])
def test_fused_matmul(tmp_path, a, b, flags):
    check(tmp_path, "FusedMatMul", [rand(*a), rand(*b, seed=1)], **flags)


@pytest.mark.parametrize("bits, k, block", [(4, 64, 32), (4, 40, 16), (4, 96, 32), (8, 64, 32)])
@pytest.mark.parametrize("points", ["none", "packed"])
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_n_bits(tmp_path, bits, k, block, points, bias):
    n, blocks = 6, -(-k // block)
    random = np.random.default_rng(bits + k)
    packed = random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = rand(n * blocks, scale=0.1)
    inputs = [rand(2, 3, k), packed, scales, None, None, rand(n, seed=5) if bias else None]
    if points == "packed":
        inputs[3] = random.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)
    known = [i for i in (1, 2, 3) if inputs[i] is not None]
    check(tmp_path, "MatMulNBits", inputs, known=known, atol=1e-3, K=k, N=n, bits=bits, block_size=block)


#===---------------------------------------------------------------------------------------------===#
# Attention
#===---------------------------------------------------------------------------------------------===#


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", ["none", "keys", "full", "ends"])
@pytest.mark.parametrize("past", [0, 3])
def test_attention(tmp_path, causal, mask, past):
    batch, sequence, heads, size = 2, 4, 2, 4
    hidden, total = heads * size, past + sequence
    inputs = [rand(batch, sequence, 6), rand(6, 3 * hidden, seed=1), rand(3 * hidden, seed=2), None, None]
    if mask == "keys":
        inputs[3] = np.array([[1] * total, [1] * (total - 2) + [0] * 2], np.int32)
    elif mask == "full":
        inputs[3] = np.random.default_rng(3).integers(0, 2, (batch, sequence, total)).astype(np.int32)
    elif mask == "ends":
        inputs[3] = np.array([total, total - 1], np.int32)
    if past:
        inputs[4] = rand(2, batch, heads, past, size, seed=3)
    check(tmp_path, "Attention", inputs, 2, num_heads=heads, unidirectional=causal)


def test_attention_bias_and_sizes(tmp_path):
    inputs = [rand(2, 4, 6), rand(6, 8 + 8 + 4, seed=1), rand(20, seed=2), None, None, rand(1, 2, 4, 4, seed=3)]
    check(tmp_path, "Attention", inputs, compiled=True, num_heads=2, qkv_hidden_sizes=[8, 8, 4], scale=0.3)


@pytest.mark.parametrize("mask, bias, past", list(itertools.product(["none", "keys", "ends"], [False, True], [0, 3])))
def test_multi_head_attention(tmp_path, mask, bias, past):
    batch, queries, keys, heads, hidden = 2, 3, 5, 2, 8
    inputs = [rand(batch, queries, hidden), rand(batch, keys, hidden, seed=1), rand(batch, keys, hidden, seed=2)]
    inputs += [rand(3 * hidden, seed=3) if bias else None, None, None]
    total = past + keys
    if mask == "keys":
        inputs[4] = np.array([[1] * total, [1] * (total - 2) + [0] * 2], np.int32)
    elif mask == "ends":
        inputs[4] = np.array([total, total - 1], np.int32)
    if bias:
        inputs[5] = rand(1, heads, queries, total, seed=4)
    outputs = 1
    if past:
        inputs += [rand(batch, heads, past, 4, seed=5), rand(batch, heads, past, 4, seed=6)]
        outputs = 3
    check(tmp_path, "MultiHeadAttention", inputs, outputs, num_heads=heads)


def test_multi_head_attention_causal_and_cross(tmp_path):
    x = [rand(2, 4, 8, seed=i) for i in range(3)]
    check(tmp_path, "MultiHeadAttention", x, num_heads=2, unidirectional=1)
    cache = [rand(2, 4, 8), rand(2, 2, 5, 4, seed=1), rand(2, 2, 5, 4, seed=2)]
    check(tmp_path, "MultiHeadAttention", cache, num_heads=2, scale=0.7)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", ["offset", "each"])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding(tmp_path, interleaved, positions, rank):
    x = rand(2, 3, 16) if rank == 3 else rand(2, 2, 3, 8)
    at = np.array([4], np.int64) if positions == "offset" else np.array([[0, 1, 2], [5, 3, 1]], np.int64)
    check(tmp_path, "RotaryEmbedding", [x, at, rand(10, 4), rand(10, 4, seed=1)], interleaved=interleaved)


def test_partial_rotary_embedding(tmp_path):
    at = np.array([[0, 1, 2], [5, 3, 1]], np.int64)
    inputs = [rand(2, 3, 16), at, rand(10, 2), rand(10, 2, seed=1)]
    check(tmp_path, "RotaryEmbedding", inputs, num_heads=2, rotary_embedding_dim=4)


def group_query(batch, steps, heads, kv, size, lengths, total, past=0, packed=False, seed=0):
    if packed:
        qkv = [rand(batch, steps, (heads + 2 * kv) * size, seed=seed), None, None]
    else:
        qkv = [rand(batch, steps, n * size, seed=seed + i) for i, n in enumerate((heads, kv, kv))]
    cache = [rand(batch, kv, past, size, seed=seed + i) for i in (3, 4)] if past else [None, None]
    return [*qkv, *cache, np.array(lengths, np.int32), np.array(total, np.int32)]


@pytest.mark.parametrize("rotary, packed, window, cap", [
    (0, False, -1, 0.0), (1, False, -1, 0.0), (1, True, -1, 0.0), (0, False, 2, 0.0), (1, False, -1, 5.0),
])
def test_group_query_attention(tmp_path, rotary, packed, window, cap):
    flags = dict(num_heads=4, kv_num_heads=2, do_rotary=rotary, local_window_size=window, softcap=cap)
    tables = [rand(16, 8), rand(16, 8, seed=1)] if rotary else []
    # A prompt, and a step after five keys; the lengths are known at run time, then at compile time.
    prompt = group_query(2, 4, 4, 2, 16, [3, 3], 4, packed=packed)
    check(tmp_path, "GroupQueryAttention", prompt + tables, 3, known=[6], **flags)
    step = group_query(2, 1, 4, 2, 16, [5, 5], 6, past=5, packed=packed)
    check(tmp_path, "GroupQueryAttention", step + tables, 3, known=[6], **flags)
    check(tmp_path, "GroupQueryAttention", step + tables, 3, known=[5, 6], **flags)


def test_group_query_attention_ragged(tmp_path):
    # Rows after a sequence's own keys become zero.
    step = group_query(2, 1, 4, 2, 8, [5, 3], 6, past=8)
    check(tmp_path, "GroupQueryAttention", step, ["o", "k", "v"], known=[6], compiled=True, num_heads=4, kv_num_heads=2)


def test_group_query_attention_sinks(tmp_path):
    step = group_query(2, 3, 4, 2, 8, [2, 2], 3)
    check(tmp_path, "GroupQueryAttention", step, 3, known=[6], num_heads=4, kv_num_heads=2, smooth_softmax=1)
    sinks = step + [None, None, None, None, rand(4, seed=9)]
    check(tmp_path, "GroupQueryAttention", sinks, 3, known=[6], num_heads=4, kv_num_heads=2)


#===---------------------------------------------------------------------------------------------===#
# Quantization
#===---------------------------------------------------------------------------------------------===#


def quantized(*shape, dtype=np.uint8, seed=0):
    """Numbers of all 8 bits, or of 7 if signed: without VNNI, ONNX Runtime saturates sums of two products of more."""
    low, high = (-64, 63) if dtype == np.int8 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_binary(tmp_path, op, dtype):
    scale, point = np.float32(0.02), np.array(3, dtype)
    side = [np.array(scale), point]
    inputs = [quantized(2, 3, 4, dtype=dtype), *side, quantized(3, 4, dtype=dtype, seed=1), *side, np.array(0.05, np.float32), point]
    # ONNX Runtime's kernels round a few elements differently.
    check(tmp_path, op, inputs, known=[1, 2, 4, 5, 6, 7], atol=1)


@pytest.mark.parametrize("axis", [None, 1])
def test_matmul_integer_to_float(tmp_path, axis):
    columns = () if axis is None else (5,)
    inputs = [quantized(2, 3, 8), quantized(8, 5, dtype=np.int8, seed=1), np.array(0.1, np.float32)]
    inputs += [np.full(columns, 0.02, np.float32), np.array(7, np.uint8), np.zeros(columns, np.int8), rand(5)]
    check(tmp_path, "MatMulIntegerToFloat", inputs, known=[1, 3, 5])


def scaled(x, scale=0.02, point=3):
    """x with a scale and a zero point."""
    return [x, np.array(scale, np.float32), np.array(point, x.dtype)]


@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_unary(tmp_path, op, dtype):
    flags = {"alpha": 0.2} if op == "QLinearLeakyRelu" else {}
    inputs = scaled(quantized(2, 3, 4, dtype=dtype)) + scaled(quantized(1, dtype=dtype), 0.01, 5)[1:]
    check(tmp_path, op, inputs, known=[1, 2, 3, 4], atol=1, **flags)


@pytest.mark.parametrize("opset, axis", [(11, 1), (13, 1), (13, -1)])
def test_qlinear_softmax(tmp_path, opset, axis):
    inputs = scaled(quantized(2, 3, 4)) + scaled(quantized(1), 1 / 256, 0)[1:]
    check(tmp_path, "QLinearSoftmax", inputs, known=[1, 2, 3, 4], atol=1, opset=opset, axis=axis)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
def test_qlinear_pools(tmp_path, op, last):
    shape = (2, 5, 6, 3) if last else (2, 3, 5, 6)
    flags = {} if "Global" in op else dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    inputs = scaled(quantized(*shape)) + scaled(quantized(1), 0.015, 9)[1:]
    check(tmp_path, op, inputs, known=[1, 2, 3, 4], atol=1, channels_last=last, **flags)


def test_nhwc_max_pool(tmp_path):
    x = quantized(2, 5, 6, 3)
    check(tmp_path, "NhwcMaxPool", [x], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])


@pytest.mark.parametrize("last", [0, 1])
def test_qlinear_conv_channels_last(tmp_path, last):
    x = quantized(2, 5, 6, 4) if last else quantized(2, 4, 5, 6)
    inputs = scaled(x) + scaled(quantized(6, 2, 3, 3, dtype=np.int8, seed=1), 0.03, 0) + scaled(quantized(1), 0.5, 8)[1:]
    inputs.append(np.arange(6, dtype=np.int32) * 50)
    check(tmp_path, "QLinearConv", inputs, known=range(1, 9), atol=1, channels_last=last, group=2, pads=[1, 1, 1, 1])


def test_qlinear_concat_and_where(tmp_path):
    x, y = quantized(2, 3, 4), quantized(2, 5, 4, seed=1)
    result = scaled(x, 0.03, 7)[1:]
    check(tmp_path, "QLinearConcat", result + scaled(x) + scaled(y, 0.04, 1), known=[0, 1, 3, 4, 6, 7], atol=1, axis=1)
    choice = np.random.default_rng(3).integers(0, 2, (3, 1)).astype(bool)
    inputs = [choice, *scaled(x), *scaled(quantized(2, 3, 4, seed=2), 0.04, 1), *result]
    check(tmp_path, "QLinearWhere", inputs, known=[2, 3, 5, 6, 7, 8], atol=1)


@pytest.mark.parametrize("a, b, flags", [(0, 0, {}), (0, 1, {"alpha": 0.5}), (1, 0, {})])
@pytest.mark.parametrize("real", [False, True])
def test_qgemm(tmp_path, a, b, flags, real):
    x, y = quantized(*((5, 3) if a else (3, 5))), quantized(*((4, 5) if b else (5, 4)), dtype=np.int8, seed=1)
    inputs = scaled(x) + scaled(y, 0.03, 0) + [np.array([100, -50, 3, 0], np.int32)]
    inputs += [] if real else scaled(x, 0.1, 100)[1:]
    known = [i for i in range(1, len(inputs)) if i != 3]
    check(tmp_path, "QGemm", inputs, known=known, atol=1e-5 if real else 1, transA=a, transB=b, **flags)


@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_matmul(tmp_path, per_column):
    columns = (5,) if per_column else (1,)
    inputs = [rand(2, 3, 8), quantized(8, 5, dtype=np.int8, seed=1), np.full(columns, 0.02, np.float32), np.zeros(columns, np.int8)]
    check(tmp_path, "DynamicQuantizeMatMul", inputs + [rand(5)], known=[1, 2, 3, 4], atol=1e-4)
    check(tmp_path, "DynamicQuantizeMatMul", inputs, known=[1, 2, 3], atol=1e-4, compiled=True)


@pytest.mark.parametrize("direction, per_column", [("forward", True), ("reverse", False), ("bidirectional", False)])
def test_dynamic_quantize_lstm(tmp_path, direction, per_column):
    steps, batch, size, width = 4, 3, 6, 5
    both = 2 if direction == "bidirectional" else 1
    columns = (both, 4 * size) if per_column else (both,)
    weights = [quantized(both, n, 4 * size, dtype=np.int8, seed=n) for n in (width, size)]
    scales = [np.full(columns, 0.004, np.float32), np.zeros(columns, np.int8)]
    inputs = [rand(steps, batch, width), *weights, rand(both, 8 * size, seed=3), np.array([4, 2, 3], np.int32)]
    inputs += [rand(both, batch, size, seed=4), rand(both, batch, size, seed=5), rand(both, 3 * size, seed=6), *scales, *scales]
    known = [1, 2, 3, 7, 8, 9, 10, 11]
    # A state close to a rounding boundary moves by 1/255.
    check(tmp_path, "DynamicQuantizeLSTM", inputs, 3, known=known, atol=5e-3, compiled=True, hidden_size=size, direction=direction)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("causal", [0, 1])
def test_q_attention(tmp_path, past, causal):
    batch, sequence, heads, size = 2, 4, 2, 4
    hidden = heads * size
    inputs = [quantized(batch, sequence, 6), quantized(6, 3 * hidden, dtype=np.int8, seed=1), rand(3 * hidden, seed=2)]
    inputs += [np.array(0.02, np.float32), np.array(0.01, np.float32), np.array([sequence + past, 3], np.int32)]
    inputs += [np.array(120, np.uint8), np.array(0, np.int8)]
    inputs += [rand(2, batch, heads, past, size, seed=3)] if past else []
    check(tmp_path, "QAttention", inputs, 2, known=[1, 2], num_heads=heads, unidirectional=causal)


def test_fused_conv_and_gemm(tmp_path):
    x, w, bias = rand(2, 4, 5, 6), rand(6, 2, 3, 3, seed=1), rand(6, seed=2)
    flags = dict(group=2, pads=[1, 1, 1, 1])
    for activation, parameters in [("Relu", []), ("Clip", [-0.5, 1.5]), ("LeakyRelu", [0.3]), ("HardSigmoid", [0.3, 0.4])]:
        more = {"activation_params": parameters} if parameters else {}
        check(tmp_path, "FusedConv", [x, w, bias], activation=activation, **more, **flags)
    check(tmp_path, "FusedConv", [x, w, bias, rand(2, 6, 5, 6, seed=3)], activation="Relu", **flags)
    a, b, c = rand(3, 5), rand(4, 5, seed=1), rand(4, seed=2)
    for activation, more in [("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {})]:
        check(tmp_path, "FusedGemm", [a, b, c], activation=activation, transB=1, alpha=0.5, **more)


REFUSALS = {
    "DynamicQuantizeLSTM": (
        [rand(2, 1, 4), np.zeros((1, 4, 8), np.int8), np.zeros((1, 2, 8), np.int8), *[None] * 5]
        + [np.ones(1, np.float32), np.zeros(1, np.int8), np.ones(3, np.float32), np.zeros(3, np.int8)],
        dict(hidden_size=2),
        "input 10 is [3], expected [1] or [1, 8]",
    ),
    "QLinearConcat": (
        [*scaled(quantized(1))[1:], *scaled(quantized(2, 3)), *scaled(quantized(3, 3))],
        dict(axis=1),
        "cannot concatenate [2, 3] and [3, 3] along axis 1",
    ),
    "FusedGemm": ([rand(2, 3), rand(3, 4)], dict(activation="Swim"), "activation 'Swim' is not supported"),
    "MatMulNBits": (
        [rand(2, 32), np.zeros((3, 1, 16), np.uint8), rand(4)],
        dict(K=32, N=3, bits=4, block_size=32),
        "B [3, 1, 16] and scales [4] are not those of N = 3, K = 32 in blocks of 32",
    ),
    "Attention": ([rand(1, 2, 4), rand(4, 12), rand(12)], dict(num_heads=5), "cannot split [1, 2, 4] into 5 heads"),
    "Attention of vectors": (
        [rand(4), rand(4)],
        dict(num_heads=1),
        "the product of input and weights is [], expected [batch, length, columns]",
    ),
    "QLinearGlobalAveragePool": (
        [quantized(4), *scaled(quantized(1))[1:], *scaled(quantized(1))[1:]],
        {},
        "input [4] has no spatial dimensions",
    ),
    "GroupQueryAttention": (
        [rand(1, 2, 8), rand(1, 2, 8), rand(1, 2, 8), None, None, np.array([1], np.int32), np.array(2, np.int32)],
        dict(num_heads=2, kv_num_heads=2),
        "input 'total_sequence_length' must be one number known at compile time, but is 'tensor<i32>'",
    ),
    "MultiHeadAttention": ([rand(1, 2, 8)], dict(num_heads=2), "packed key and value and shared buffers are not supported"),
    "FusedMatMul": ([rand(2, 3), rand(2, 3)], {}, "operands [2, 3] and [2, 3] cannot be multiplied: 3 columns times 2 rows"),
    "SkipLayerNormalization": ([rand(2, 3, 8), rand(2, 3, 8), rand(7)], {}, "input 2 is [7] for [2, 3, 8]"),
    "RotaryEmbedding": (
        [rand(1, 3, 8), np.array([0], np.int64), rand(9, 3), rand(9, 3)],
        dict(num_heads=2),
        "cannot rotate [1, 2, 3, 4] by cosines [1, 3, 3] and sines [1, 3, 3]",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(tmp_path, name):
    inputs, attributes, message = REFUSALS[name]
    op = name.split()[0]
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    given = {n: v for n, v in zip(names, inputs) if n}
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="n", domain="com.microsoft", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    case = evaluate.evaluate(tmp_path, model, list(given.values()))
    assert case.error == f"{op} 'n': {message}"
