"""Builds ONNX graphs the way PyTorch's exporter writes them: scoped node names, `Constant` nodes for
scalars and axes, shape arithmetic as nodes, version-dependent operator forms."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dim = int | str


class ExternalFile:
    """A file next to a model for weights, written one by one, so that at most one is in memory. Offsets are multiples of 4096, so that a
    loader can map each."""

    ALIGNMENT = 4096
    LEAST_BYTES = 1024  # smaller weights stay in the model

    def __init__(self, model: str | Path):
        """Creates `<model>.data`, replacing an existing file."""
        self.path = Path(f"{model}.data")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")

    def add(self, name: str, array: np.ndarray) -> TensorProto:
        """Writes `array` and returns the tensor that refers to it."""
        with self.path.open("r+b") as file:
            offset = -(-file.seek(0, 2) // self.ALIGNMENT) * self.ALIGNMENT
            file.truncate(offset)
            if array.size and not any(array.strides):  # all elements are one zero: leaves a hole in the file
                file.truncate(offset + array.nbytes)
            else:
                file.seek(offset)
                np.ascontiguousarray(array).tofile(file)
        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in [("location", self.path.name), ("offset", offset), ("length", array.nbytes)]:
            tensor.external_data.add(key=key, value=str(value))
        return tensor


class GraphBuilder:
    """Collects nodes and weights; `build` returns the model. Values are their ONNX names. With a `store`, large weights are written
    there at once."""

    def __init__(self, name: str, opset: int, store: ExternalFile | None = None):
        newest = onnx.defs.onnx_opset_version()
        if not 13 <= opset <= newest:
            raise ValueError(f"opset {opset} is outside 13..{newest}, the range this zoo writes")
        self.name = name
        self.opset = opset
        self.store = store
        self._scopes: list[str] = []
        self._names: Counter[str] = Counter()
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    @contextlib.contextmanager
    def scope(self, *parts: str) -> Iterator[None]:
        """Nodes made inside are named `/parts.../Type`."""
        self._scopes.extend(parts)
        yield
        del self._scopes[-len(parts) :]

    def input(self, name: str, dtype: int, shape: Sequence[Dim]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, name: str, value: str, dtype: int, shape: Sequence[Dim]) -> None:
        """Makes `value` a graph output called `name`, by renaming it where it is produced."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        for node in self._nodes:
            for names in (node.input, node.output):
                for i, existing in enumerate(names):
                    if existing == value:
                        names[i] = name

    def weight(self, name: str, array: np.ndarray) -> str:
        if name not in self._weights:
            if self.store and array.nbytes >= ExternalFile.LEAST_BYTES:
                self._weights[name] = self.store.add(name, array)
            else:
                self._weights[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        """Adds a node with one output and returns the output's name."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes) -> list[str]:
        """Adds a node with several outputs and returns their names."""
        stem = "/" + "/".join([*self._scopes, kind])
        repeats = self._names[stem]
        self._names[stem] += 1
        name = f"{stem}_{repeats}" if repeats else stem
        made = [f"{name}_output_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), made, name=name, **attributes))
        return made

    def constant(self, value, dtype=np.float32) -> str:
        array = np.array(value, dtype=dtype)
        return self.op("Constant", value=numpy_helper.from_array(array))

    def axes_op(self, kind: str, value: str, axes: Sequence[int], since: int, **attributes) -> str:
        """`kind` over `axes`, which became an input instead of an attribute in opset `since`."""
        if self.opset >= since:
            return self.op(kind, value, self.constant(list(axes), np.int64), **attributes)
        return self.op(kind, value, axes=list(axes), **attributes)

    def unsqueeze(self, value: str, axis: int) -> str:
        return self.axes_op("Unsqueeze", value, [axis], since=13)

    def dim(self, value: str, axis: int) -> str:
        """The size of one dimension as an int64 scalar."""
        return self.op("Gather", self.op("Shape", value), self.constant(axis, np.int64), axis=0)

    def reshape(self, value: str, *dims: int | str) -> str:
        """Reshapes to sizes that are numbers or int64 scalars computed in the graph."""
        parts = [
            self.constant([d], np.int64) if isinstance(d, int) else self.unsqueeze(d, 0) for d in dims
        ]
        return self.op("Reshape", value, self.op("Concat", *parts, axis=0))

    def build(self, doc: str = "") -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, list(self._weights.values()), doc_string=doc
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="gridloom.zoo")
        model.ir_version = helper.find_min_ir_version_for(opsets)
        return model


FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL


def layer_norm(g: GraphBuilder, x: str, weight: str, bias: str, epsilon: float, fused: bool) -> str:
    """Normalises over the last dimension: one node, or the nine nodes that the exporter wrote before opset 17."""
    if fused:
        if g.opset < 17:
            raise ValueError(f"opset {g.opset} has no LayerNormalization; it came with 17")
        return g.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)
    mean = g.axes_op("ReduceMean", x, [-1], since=18, keepdims=1)
    centred = g.op("Sub", x, mean)
    square = g.op("Pow", centred, g.constant(2.0))
    variance = g.axes_op("ReduceMean", square, [-1], since=18, keepdims=1)
    deviation = g.op("Sqrt", g.op("Add", variance, g.constant(epsilon)))
    return g.op("Add", g.op("Mul", g.op("Div", centred, deviation), weight), bias)


def gelu(g: GraphBuilder, x: str, form: str) -> str:
    """GELU as `erf` or `tanh` arithmetic, or as the `op` of opset 20."""
    if form == "op":
        if g.opset < 20:
            raise ValueError(f"opset {g.opset} has no Gelu; it came with 20")
        return g.op("Gelu", x)
    if form == "erf":
        erf = g.op("Erf", g.op("Div", x, g.constant(2.0**0.5)))
        return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.constant(1.0))), g.constant(0.5))
    if form == "tanh":
        cube = g.op("Pow", x, g.constant(3.0))
        inner = g.op("Add", x, g.op("Mul", cube, g.constant(0.044715)))
        tanh = g.op("Tanh", g.op("Mul", inner, g.constant((2.0 / np.pi) ** 0.5)))
        half = g.op("Mul", x, g.constant(0.5))
        return g.op("Mul", half, g.op("Add", tanh, g.constant(1.0)))
    raise ValueError(f"gelu form {form!r} is not one of erf, tanh, op")


def linear(g: GraphBuilder, x: str, weight: str, bias: str) -> str:
    """`x @ weight + bias` for a weight of shape [in, out], bias first as the exporter writes it."""
    return g.op("Add", bias, g.op("MatMul", x, weight))
