"""Models written by ONNX Runtime's tools, fused for transformers or quantized, against ONNX Runtime itself."""

from __future__ import annotations

import logging
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import evaluate

sys.path.insert(0, str(evaluate.ROOT / "python"))

from gridloom import backend, zoo  # noqa: E402

onnxruntime.set_default_logger_severity(4)
logging.getLogger().setLevel(logging.ERROR)
DIMS = {"batch": 2, "sequence": 8}


def bert(folder):
    config = zoo.BertConfig(layers=2, hidden=32, heads=4, intermediate=64, vocabulary=100, positions=24)
    path = folder / "plain.onnx"
    onnx.save(zoo.bert(config, zoo.Random(3, scale=0.3)), path)
    random = np.random.default_rng(5)
    mask = np.ones((2, 8), np.int64)
    mask[0, 5:] = 0
    inputs = {
        "input_ids": random.integers(0, 100, (2, 8)),
        "attention_mask": mask,
        "token_type_ids": random.integers(0, 2, (2, 8)),
    }
    return path, inputs


def mlp(folder):
    path = folder / "plain.onnx"
    onnx.save(zoo.mlp([24, 40, 8], zoo.Random(1, scale=0.5), activation="relu"), path)
    return path, {"x": np.random.default_rng(2).standard_normal((2, 24)).astype(np.float32)}


def fuse(path):
    from onnxruntime.transformers import optimizer

    fused = optimizer.optimize_model(str(path), model_type="bert", num_heads=4, hidden_size=32, opt_level=0)
    return fused.model


def fuse_at_load(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_name("fused.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def quantize_weights(path):
    target = path.with_name("quantized.onnx")
    quantize_dynamic(path, target, weight_type=QuantType.QInt8)
    return onnx.load(target)


def quantize_to_four_bits(path):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(path), block_size=16, is_symmetric=False)
    quantizer.process()
    return quantizer.model.model


class Samples(CalibrationDataReader):
    def __init__(self):
        random = np.random.default_rng(4)
        self.samples = iter([{"x": random.standard_normal((2, 24)).astype(np.float32)} for _ in range(8)])

    def get_next(self):
        return next(self.samples, None)


def quantize_statically(form, activations):
    def quantize(path):
        target = path.with_name("quantized.onnx")
        quantize_static(
            path, target, Samples(), quant_format=form, per_channel=True, activation_type=activations, weight_type=QuantType.QInt8
        )
        return onnx.load(target)

    return quantize


# How a model is made, how it is changed, and the operators that it must have then.
MODELS = {
    "bert-fused": (bert, fuse, {"Attention", "SkipLayerNormalization", "BiasGelu", "EmbedLayerNormalization"}),
    "bert-fused-at-load": (bert, fuse_at_load, {"FusedMatMul", "BiasGelu"}),
    "bert-dynamic": (bert, quantize_weights, {"MatMulInteger", "DynamicQuantizeLinear"}),
    "bert-4-bit": (bert, quantize_to_four_bits, {"MatMulNBits"}),
    "mlp-qdq": (mlp, quantize_statically(QuantFormat.QDQ, QuantType.QUInt8), {"DequantizeLinear", "QuantizeLinear"}),
    "mlp-qdq-signed": (mlp, quantize_statically(QuantFormat.QDQ, QuantType.QInt8), {"DequantizeLinear"}),
    "mlp-integer": (mlp, quantize_statically(QuantFormat.QOperator, QuantType.QUInt8), {"QuantizeLinear"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_onnxruntime(tmp_path, name):
    make, change, operators = MODELS[name]
    path, inputs = make(tmp_path)
    model = change(path)
    assert operators <= {node.op_type for node in model.graph.node}
    options = onnxruntime.SessionOptions()
    # On CPUs without VNNI, the faster kernels saturate sums of two 8-bit products at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {i.name: inputs[i.name].astype(np.int32) if "int32" in i.type else inputs[i.name] for i in session.get_inputs()}
    expected = session.run(None, given)
    dims = "\n".join(f"{k}={v}" for k, v in DIMS.items() if k in str(model.graph.input))
    case = evaluate.evaluate(tmp_path / "case", model, list(given.values()), dims)
    assert case.error is None, case.error
    compiled = []
    for mesh in ["", "data=2"]:
        program = backend.prepare(model, mesh=mesh, base=tmp_path)
        compiled.append(program.run(list(given.values())))
        program.close()
    for outputs in (case.imported, case.simplified, *compiled):
        for actual, want in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-4)
