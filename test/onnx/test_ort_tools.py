"""Models of the zoo, changed by ONNX Runtime's tools: its quantizers, its optimizer for transformers and its sessions. Each is compiled
for one and for two ranks and compared with ONNX Runtime."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer

from suite import backend
from gridloom import zoo

onnxruntime.set_default_logger_severity(4)
SIZES = {"batch": 2, "sequence": 4, "past": 3}
CPU = ["CPUExecutionProvider"]
# Number of steps of the output's range by which quantized models may differ.
QUANTIZED = 3
FLOAT = {"DefaultTensorType": onnx.TensorProto.FLOAT}


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def build(name: str, path: Path) -> Path:
    """One of zoo.SMALL, or bert-GELU."""
    if name.startswith("bert"):
        config = zoo.BertConfig(
            layers=2, hidden=32, heads=4, intermediate=64, vocabulary=50, positions=16, gelu=name.partition("-")[2]
        )
        onnx.save_model(zoo.bert(config, zoo.Random(0), "bert"), str(path))
        return path
    model, options = zoo.SMALL[name]
    return zoo.MODELS[model].write(path, **options)


def inputs_of(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    graph = onnx.load(str(path)).graph
    values = zoo.random_inputs(graph, SIZES, 50, seed)
    for name in values:
        if "mask" in name or "token_type" in name:
            values[name] = values[name] % 2
        if "mask" in name:
            values[name][:, 0] = 1
    return values


class Calibration(CalibrationDataReader):
    def __init__(self, path: Path):
        self.inputs = iter([inputs_of(path, seed) for seed in range(4)])

    def get_next(self):
        return next(self.inputs, None)


#===---------------------------------------------------------------------------------------------===#
# The tools: a model's file becomes another
#===---------------------------------------------------------------------------------------------===#


def dynamic(path: Path, type=QuantType.QInt8, per_channel=False) -> Path:
    result = path.with_suffix(".dynamic.onnx")
    # Weights of 7 bits: without VNNI, ONNX Runtime saturates sums of two products of more.
    quantize_dynamic(path, result, weight_type=type, per_channel=per_channel, reduce_range=True, extra_options=FLOAT)
    return result


def unsigned(path: Path) -> Path:
    return dynamic(path, QuantType.QUInt8)


def per_channel(path: Path) -> Path:
    return dynamic(path, QuantType.QInt8, True)


def static(path: Path, format: QuantFormat, type: QuantType, per_channel=False) -> Path:
    result = path.with_suffix(".static.onnx")
    reader = Calibration(path)
    quantize_static(
        path,
        result,
        reader,
        quant_format=format,
        activation_type=type,
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
        reduce_range=True,
    )
    return result


def qdq(path: Path) -> Path:
    return static(path, QuantFormat.QDQ, QuantType.QUInt8)


def qdq_per_channel(path: Path) -> Path:
    return static(path, QuantFormat.QDQ, QuantType.QInt8, per_channel=True)


def qoperator(path: Path) -> Path:
    return static(path, QuantFormat.QOperator, QuantType.QUInt8)


def qoperator_signed(path: Path) -> Path:
    return static(path, QuantFormat.QOperator, QuantType.QInt8)


def four_bits(path: Path, format=QuantFormat.QDQ, symmetric=False) -> Path:
    """Weights of four bits, in blocks of 16."""
    result = path.with_suffix(".bits.onnx")
    config = DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=symmetric, quant_format=format, bits=4)
    quantizer = MatMulNBitsQuantizer(onnx.load(str(path)), algo_config=config)
    quantizer.process()
    onnx.save_model(quantizer.model.model, str(result))
    return result


def four_bits_symmetric(path: Path) -> Path:
    return four_bits(path, symmetric=True)


def n_bits(path: Path) -> Path:
    return four_bits(path, QuantFormat.QOperator)


def fused(path: Path) -> Path:
    """Fused by onnxruntime.transformers.optimizer."""
    kind = path.name.split(".")[0].split("-")[0]
    result = path.with_suffix(".fused.onnx")
    model = optimizer.optimize_model(
        str(path), model_type={"llama": "gpt2"}.get(kind, kind), num_heads=4, hidden_size=32, opt_level=0
    )
    model.save_model_to_file(str(result))
    return result


def session(path: Path, level: str) -> Path:
    result = path.with_suffix(f".{level}.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(result)
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    onnxruntime.InferenceSession(str(path), options, providers=CPU)
    return result


def extended(path: Path) -> Path:
    return session(path, "EXTENDED")


def everything(path: Path) -> Path:
    return session(path, "ALL")


#===---------------------------------------------------------------------------------------------===#
# Cases: a model, the tools it goes through, and com.microsoft operators that come out
#===---------------------------------------------------------------------------------------------===#

CASES = [
    ("bert-erf", [per_channel], []),
    ("bert-erf", [fused], ["Attention", "BiasGelu", "EmbedLayerNormalization", "SkipLayerNormalization"]),
    ("bert-tanh", [fused], ["Attention", "FastGelu"]),
    ("bert-erf", [fused, dynamic], ["QAttention", "QEmbedLayerNormalization"]),
    ("bert-tanh", [fused, per_channel], ["QAttention"]),
    ("bert-erf", [extended], ["BiasGelu", "FusedMatMul"]),
    ("bert-erf", [everything], ["FusedMatMul"]),
    ("bert-erf", [unsigned, extended], ["DynamicQuantizeMatMul", "Gelu", "MatMulIntegerToFloat"]),
    ("bert-erf", [qdq], []),
    ("bert-erf", [qoperator], ["QLinearAdd", "QLinearMul", "QLinearSoftmax"]),
    ("bert-erf", [four_bits], []),
    ("gpt2", [four_bits_symmetric], []),
    ("gpt2", [n_bits], ["MatMulNBits"]),
    ("gpt2", [dynamic], []),
    ("gpt2-concat", [fused], ["FastGelu", "SkipLayerNormalization"]),
    ("gpt2", [dynamic, extended], ["DynamicQuantizeMatMul"]),
    ("gpt2-concat", [qoperator_signed], ["QLinearConcat"]),
    ("gpt2-static", [everything], ["FusedMatMul"]),
    ("llama", [fused], ["SkipSimplifiedLayerNormalization"]),
    ("llama", [extended], ["QuickGelu"]),
    ("llama", [qoperator], ["QLinearSigmoid"]),
    ("lstm", [dynamic], ["DynamicQuantizeLSTM"]),
    ("lstm", [unsigned], ["DynamicQuantizeLSTM"]),
    ("lstm-both", [per_channel], ["DynamicQuantizeLSTM"]),
    ("lstm", [qdq], []),
    ("moe", [dynamic, extended], ["QuickGelu"]),
    ("resnet", [dynamic], []),
    ("resnet", [qdq_per_channel], []),
    ("resnet", [qoperator], ["QGemm", "QLinearAdd", "QLinearGlobalAveragePool"]),
    ("resnet", [qoperator_signed], ["QGemm"]),
    ("resnet", [qdq, extended], ["QLinearGlobalAveragePool"]),
    ("resnet", [qoperator, everything], ["QLinearConv"]),
    ("resnet", [extended], ["FusedConv"]),
    ("unet", [qoperator], ["QLinearConcat"]),
    ("unet", [extended], ["FusedConv"]),
    ("vit", [fused], ["Attention"]),
    ("vit", [qoperator], ["QLinearConcat", "QLinearSoftmax"]),
]


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain == "com.microsoft"}


IDS = ["-".join([name, *(tool.__name__ for tool in tools)]) for name, tools, _ in CASES]


@pytest.mark.parametrize("name, tools, expected", CASES, ids=IDS)
def test_tool(tmp_path, name, tools, expected):
    path = original = build(name, tmp_path / f"{name}.onnx")
    for tool in tools:
        path = tool(path)
    model = onnx.load(str(path))
    assert set(expected) <= operators(model)
    inputs = inputs_of(original, seed=9)
    # Without optimizations: with them, ONNX Runtime would e.g. quantize the other operand of weights of four bits.
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(str(path), plain, providers=CPU).run(None, inputs)
    steps = 0 if {fused, extended, everything, four_bits, four_bits_symmetric, n_bits}.issuperset(tools) else QUANTIZED
    for mesh, strategy in [("", None), ("x=2", f"random:{zlib.crc32(path.name.encode())}")]:
        program = backend.prepare(model, mesh=mesh, strategy=strategy, base=tmp_path)
        for actual, want in zip(program.run(inputs), wanted, strict=True):
            assert actual.dtype == want.dtype and actual.shape == want.shape
            # A different rounding moves a quantized value by a step, 1/255 of its range.
            spread = float(np.ptp(want))
            np.testing.assert_allclose(actual, want, rtol=1e-4, atol=spread * (1e-5 + steps / 255))
        program.close()
