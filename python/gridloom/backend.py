"""ONNX's backend interface: `prepare` a model, `run` it on arrays. Everything is compiled and runs on real ranks.

    from gridloom import backend
    backend.prepare(model).run([x])                                   # one device
    backend.prepare(model, mesh="x=2,y=2", strategy="random:7").run([x])  # four ranks, split at random

Two things differ from an interpreter. Shapes are fixed when a model is compiled, so compilation waits for the first
`run` and takes the shapes of its inputs; other shapes compile again. And operands that decide shapes or attributes (the
second of Reshape, the axes of ReduceSum, ...) must be known then: where they are graph inputs, as in ONNX's node tests,
they become initializers with the values of the first run, and other values compile again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from ._compiler import compile
from .plan import Plan
from .session import Session, load

# Operands that must be known when a model is compiled, by operator.
CONSTANT_OPERANDS = {
    "AffineGrid": [1],
    "BlackmanWindow": [0],
    "CenterCropPad": [1],
    "Col2Im": [1, 2],
    "ConstantOfShape": [0],
    "CumProd": [1],
    "CumSum": [1],
    "DFT": [1, 2],
    "Dropout": [1, 2],
    "Expand": [1],
    "HammingWindow": [0],
    "HannWindow": [0],
    "Loop": [0, 1],
    "MaxUnpool": [2],
    "MelWeightMatrix": [0, 1, 2, 3, 4],
    "NonMaxSuppression": [2],
    "OneHot": [1],
    "Pad": [1, 3],
    "Range": [0, 1, 2],
    "Reshape": [1],
    "Resize": [1, 2, 3],
    "STFT": [1, 3],
    "SequenceAt": [1],
    "SequenceErase": [1],
    "SequenceInsert": [2],
    "Slice": [1, 2, 3, 4],
    "Split": [1],
    "SplitToSequence": [1],
    "Squeeze": [1],
    "Tile": [1],
    "TopK": [1],
    "Trilu": [1],
    "Unsqueeze": [1],
    "Upsample": [1],
}

# Types of fewer than 8 bits, and the types in which programs take and return their elements.
_CARRIERS = {
    "int2": np.int8,
    "int4": np.int8,
    "uint2": np.uint8,
    "uint4": np.uint8,
    "float4_e2m1fn": ml_dtypes.float8_e4m3fn,
}

# Operators whose result depends only on their operand's shape.
_SHAPES = ("Shape", "Size", "ConstantOfShape")


def constant_operands(node: onnx.NodeProto) -> list[int]:
    """Positions of the operands of `node` that must be known at compile time."""
    if node.op_type == "Loop":  # if it stacks results, their number is the trip count
        return [0, 1] if len(node.output) > len(node.input) - 2 else []
    return [1] if node.op_type.startswith("Reduce") else CONSTANT_OPERANDS.get(node.op_type, [])


def _graphs(graph: onnx.GraphProto) -> Iterable[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def fixed_inputs(model: onnx.ModelProto) -> set[str]:
    """Graph inputs whose values must be known at compile time: those that reach, by any computation other than taking a
    shape, an operand that must."""
    nodes = [node for graph in _graphs(model.graph) for node in graph.node]
    makers = {name: node for node in nodes for name in node.output}
    waiting = [n.input[i] for n in nodes for i in constant_operands(n) if i < len(n.input) and n.input[i]]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in makers and makers[name].op_type not in _SHAPES:
            waiting += [n for n in makers[name].input if n]
            waiting += [o.name for a in makers[name].attribute if a.type == a.GRAPH for o in a.g.output]
    return seen & {i.name for i in model.graph.input} - {t.name for t in model.graph.initializer}


def specialise(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A copy of `model` with the shapes of `values`, one for each input, and fixed inputs as initializers."""
    fixed = fixed_inputs(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.input[:], copy.graph.value_info[:]
    for declared in model.graph.input:
        if declared.name in fixed:
            copy.graph.initializer.append(numpy_helper.from_array(values[declared.name], declared.name))
            continue
        added = copy.graph.input.add()
        added.CopyFrom(declared)
        if declared.type.HasField("optional_type") and declared.name in values:  # it has a value
            added.type.CopyFrom(declared.type.optional_type.elem_type)
        if declared.name in values and added.type.HasField("tensor_type"):
            del added.type.tensor_type.shape.dim[:]
            for size in values[declared.name].shape:
                added.type.tensor_type.shape.dim.add().dim_value = size
    return copy


def _carry(value: np.ndarray) -> np.ndarray:
    """`value` in the type that a program takes."""
    return value.astype(_CARRIERS.get(value.dtype.name, value.dtype))


def _uncarry(value: np.ndarray, declared: onnx.ValueInfoProto) -> np.ndarray:
    """A program's output in the type that its model declares."""
    kind = declared.type.tensor_type.elem_type
    wanted = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else value.dtype
    return value.astype(wanted) if wanted.name in _CARRIERS else value


def trim(results: Mapping[str, np.ndarray], names: Iterable[str]) -> dict[str, np.ndarray]:
    """The outputs called `names` without padding. If the length of dimension D of output NAME depends on data, a program returns as many
    elements as there can be, and their actual number as output NAME.dimD."""
    names, trimmed = list(names), {}
    for name in names:
        value = results[name]
        for dim in range(value.ndim):
            length = f"{name}.dim{dim}"
            if length in results and length not in names:
                value = value[(slice(None),) * dim + (slice(int(results[length])),)]
        trimmed[name] = value
    return trimmed


class Program(BackendRep):
    """A model on a mesh. `plan` is the one that ran last, None before the first run."""

    def __init__(self, model: onnx.ModelProto, options: dict, threads: int, base: Path | None = None):
        self.model = model
        self.plan: Plan | None = None
        initialised = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [i.name for i in model.graph.input if i.name not in initialised]
        self.outputs = list(model.graph.output)
        self._fixed = fixed_inputs(model)
        self._options = options
        self._threads = threads
        self._compiled: dict[tuple, tuple[Plan, Session]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="gridloom-backend-", dir=base)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                location = Path(entry.value)
                if entry.key != "location" or location.is_absolute() or ".." in location.parts:
                    continue  # the compiler refuses what is not beside the model
                linked = Path(self._folder.name) / location
                if base and not linked.exists():
                    linked.parent.mkdir(parents=True, exist_ok=True)
                    os.link(base / entry.value, linked)  # plans read weights from beside the model

    def _key(self, values: Mapping[str, np.ndarray]) -> tuple:
        fixed = tuple((n, values[n].dtype.str, values[n].shape, values[n].tobytes()) for n in sorted(self._fixed))
        return tuple(sorted((name, value.dtype.name, value.shape) for name, value in values.items())), fixed

    def _require_inputs(self, names: Iterable[str]) -> None:
        """Raises ValueError unless `names` are the model's inputs; an optional one may be left out."""
        optional = {i.name for i in self.model.graph.input if i.type.HasField("optional_type")}
        takes = f"the model takes {', '.join(self.inputs) or 'no inputs'}"
        for name in names:
            if any(name == weight.name for weight in self.model.graph.initializer):
                raise ValueError(f"{name!r} has a value in the model; {takes}")
            if name not in self.inputs:
                raise ValueError(f"there is no input {name!r}; {takes}")
        for name in self.inputs:
            if name not in names and name not in optional:
                raise ValueError(f"input {name!r} is missing; {takes}")

    def compile(self, values: Mapping[str, np.ndarray]) -> Session:
        """The session for inputs like `values`."""
        key = self._key(values)
        if key not in self._compiled:
            path = Path(self._folder.name) / f"{len(self._compiled)}.onnx"
            onnx.save_model(specialise(self.model, values), str(path))
            plan = compile(path, **self._options)
            self._compiled[key] = plan, load(plan, threads=self._threads)
        self.plan, session = self._compiled[key]
        return session

    def run(self, inputs: Sequence | Mapping | np.ndarray, **_) -> tuple[np.ndarray, ...]:
        """Outputs in the model's order. `inputs` are arrays in the order of the inputs that are no initializers, or by
        name. A missing or unknown name raises ValueError."""
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(self.inputs):
                raise ValueError(f"{len(inputs)} inputs for a model that has {len(self.inputs)}")
            inputs = dict(zip(self.inputs, inputs))
        for name, value in inputs.items():
            if value is None or isinstance(value, list) and any(isinstance(v, np.ndarray) for v in value):
                raise ValueError(f"input {name!r} is a sequence or absent; only tensors can be given")
        self._require_inputs(inputs)
        values = {name: np.asarray(value) for name, value in inputs.items()}
        session = self.compile(values)
        # Inputs that nothing reads are not in the plan.
        read = {binding.name for binding in self.plan.entries[0].specialisations[0].inputs}
        results = session.run({name: _carry(value) for name, value in values.items() if name in read})
        results = trim(results, [output.name for output in self.outputs])
        return tuple(_uncarry(results[output.name], output) for output in self.outputs)

    def close(self) -> None:
        """Frees sessions and plans."""
        for _, session in self._compiled.values():
            session.close()
        self._compiled.clear()
        self._folder.cleanup()


class GridloomBackend(Backend):
    """Compiles with Gridloom, for the CPU by default. All ranks live in this process, a thread each."""

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        *,
        mesh: str = "",
        strategy: str | None = None,
        shard: Mapping[str, str] | None = None,
        target: str | None = None,
        threads: int = 1,
        base: str | os.PathLike | None = None,
        **_,
    ) -> Program:
        """A program for `mesh`, e.g. "data=2,model=2" (empty: one device). `strategy` is the compiler's: auto, dp, tp, ..., or
        random:SEED; `shard` pins the shardings of single values, as for `gridloom.compile`. `target` is cpu or cuda:sm_90 or the like.
        `threads` are per rank, 0 for cores divided by ranks. `base` is the folder of a model whose weights are in external files and
        were not loaded; it must be writable."""
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r} is not supported; CPU is")
        if base is None:
            onnx.checker.check_model(model)
        options = {"mesh": mesh, "strategy": strategy, "shard": shard, "target": target}
        return Program(model, options, threads, base and Path(base))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs, device: str = "CPU", **options) -> tuple[np.ndarray, ...]:
        program = cls.prepare(model, device, **options)
        try:
            return program.run(inputs)
        finally:
            program.close()

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs, device: str = "CPU", outputs_info=None, **options):
        """Runs one node. `outputs_info` has the numpy type and shape of each output, needed where ONNX's shape
        inference does not find them."""
        arrays = [np.asarray(value) for value in inputs]
        names = [name for name in node.input if name]
        declared = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
        if outputs_info:
            outputs = [
                onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)
                for name, (dtype, shape) in zip(node.output, outputs_info)
            ]
        opset = options.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = onnx.helper.make_graph([node], "node", declared, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
        if not outputs_info:
            model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        return cls.run_model(model, arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU


prepare = GridloomBackend.prepare
run_model = GridloomBackend.run_model
run_node = GridloomBackend.run_node
supports_device = GridloomBackend.supports_device
