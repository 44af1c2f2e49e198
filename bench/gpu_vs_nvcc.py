"""Generated GPU kernels against hand-written ones: machine code of both, side by side.

    .venv/bin/python bench/gpu_vs_nvcc.py [--bin build/release/bin] [--toolkit /usr/local/cuda] [--sass FOLDER]

ONNX models of one kernel each are compiled for cuda:sm_90, bench/hand_kernels.cu by nvcc -O3. Prints instructions (without padding),
registers and the widest loads and stores of device memory. The exit status is 1 if a kernel of ours has more than 1.1 times the
instructions, more registers than 32 and than 1.15 times theirs, or narrower accesses. No GPU is needed."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import gridloom
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SOURCE = Path(__file__).with_name("hand_kernels.cu")
CHIP = "sm_90"
F32, I64 = TensorProto.FLOAT, TensorProto.INT64
MAX_INSTRUCTIONS, MAX_REGISTERS, FREE_REGISTERS = 1.1, 1.15, 32


@dataclasses.dataclass
class Code:
    """Machine code of one kernel."""

    instructions: int
    registers: int
    load_bits: int
    store_bits: int


def make_model(nodes, inputs: dict[str, tuple[int, list[int]]], output: list[int], **weights) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "kernel",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", F32, output)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def bias_gelu() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["s"]), helper.make_node("Gelu", ["s"], ["y"])]
    return make_model(nodes, {"x": (F32, [512, 3072]), "b": (F32, [3072])}, [512, 3072])


def softmax(rows: int, columns: int) -> onnx.ModelProto:
    return make_model(
        [helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": (F32, [rows, columns])}, [rows, columns]
    )


def add_layernorm() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Add", ["x", "r"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "scale", "bias"], ["y"], axis=-1, epsilon=1e-12),
    ]
    shapes = {"x": (F32, [512, 768]), "r": (F32, [512, 768]), "scale": (F32, [768]), "bias": (F32, [768])}
    return make_model(nodes, shapes, [512, 768])


def transpose() -> onnx.ModelProto:
    return make_model(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": (F32, [512, 3072])}, [3072, 512]
    )


def gather() -> onnx.ModelProto:
    shapes = {"t": (F32, [30522, 768]), "i": (I64, [1024])}
    return make_model([helper.make_node("Gather", ["t", "i"], ["y"], axis=0)], shapes, [1024, 768])


KERNELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "bias_gelu": bias_gelu,
    "softmax_3072": lambda: softmax(512, 3072),
    "softmax_128": lambda: softmax(12288, 128),
    "add_layernorm_768": add_layernorm,
    "transpose": transpose,
    "gather_768": gather,
}


def find_nvdisasm() -> Path:
    """The nvdisasm of the package nvidia-cuda-nvdisasm, otherwise the one on PATH."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found else []:
        for tool in sorted(Path(folder).glob("cu*/bin/nvdisasm")):
            return tool
    tool = shutil.which("nvdisasm")
    if tool is None:
        raise FileNotFoundError("nvdisasm is not installed; run scripts/bootstrap")
    return Path(tool)


def find_nvcc(toolkit: str) -> Path | None:
    nvcc = Path(toolkit) / "bin" / "nvcc"
    return nvcc if nvcc.exists() else None


def disassemble(cubin: Path) -> dict[str, list[str]]:
    """Instructions per kernel, without padding."""
    text = subprocess.run([find_nvdisasm(), "-c", cubin], capture_output=True, text=True, check=True).stdout
    kernels: dict[str, list[str]] = {}
    for section in re.split(r"\n\s*\.section\s+\.text\.", text)[1:]:
        name = section.split(",", 1)[0]
        code = [line.strip() for line in re.findall(r"/\*[0-9a-f]+\*/\s+(.*?);", section)]
        while code and (code[-1].startswith("NOP") or code[-1].startswith("BRA")):
            code.pop()
        kernels[name] = code
    return kernels


def widest(code: list[str], operation: str) -> int:
    """Bits of the widest `operation` on device memory, 0 if there is none."""
    bits = 0
    for line in code:
        found = re.search(rf"\b{operation}\.E(\S*)", line)
        if found:
            size = re.search(r"\.(U8|S8|U16|S16|64|128|256)\b", found[1] + ".")
            bits = max(bits, int(size[1].lstrip("US")) if size else 32)
    return bits


def measure(code: list[str], registers: int) -> Code:
    return Code(len(code), registers, widest(code, "LDG"), widest(code, "STG"))


def compile_by_hand(nvcc: Path, folder: Path) -> tuple[dict[str, Code], dict[str, list[str]]]:
    cubin = folder / "hand.cubin"
    command = [nvcc, "-O3", f"-arch={CHIP}", "-cubin", "-Xptxas", "-v", SOURCE, "-o", cubin]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", report, re.DOTALL)
    counts = {name: int(count) for name, count in registers}
    listing = disassemble(cubin)
    return {name: measure(code, counts[name]) for name, code in listing.items()}, listing


def compile_ours(name: str, folder: Path, options) -> tuple[Code, list[str]]:
    """The model's kernel."""
    model, plan = folder / f"{name}.onnx", folder / f"{name}.plan"
    onnx.save(KERNELS[name](), model)
    gridloom.compile(model, plan, mesh="model=1", target=f"cuda:{CHIP}", tools=options.bin)
    kernels = json.loads((plan / "report.json").read_text())["kernels"]
    if len(kernels) != 1:
        raise SystemExit(f"{name} has {len(kernels)} kernels, not one: {[kernel['symbol'] for kernel in kernels]}")
    (cubin,) = (plan / "kernels").glob("*.cubin")
    code = disassemble(cubin)[kernels[0]["symbol"]]
    return measure(code, kernels[0]["registers"]), code


def complaints(ours: Code, theirs: Code) -> list[str]:
    found = []
    if ours.instructions > MAX_INSTRUCTIONS * theirs.instructions:
        found.append("instructions")
    if ours.registers > max(FREE_REGISTERS, MAX_REGISTERS * theirs.registers):
        found.append("registers")
    if ours.load_bits < theirs.load_bits or ours.store_bits < theirs.store_bits:
        found.append("width")
    return found


def compare(options) -> dict[str, tuple[Code, Code]]:
    """(ours, theirs) by kernel."""
    nvcc = find_nvcc(options.toolkit)
    if nvcc is None:
        raise SystemExit(f"{options.toolkit} has no nvcc; give --toolkit")
    os.environ["CUDA_HOME"] = options.toolkit
    with tempfile.TemporaryDirectory() as folder:
        theirs, listing = compile_by_hand(nvcc, Path(folder))
        results = {}
        for name in KERNELS:
            ours, code = compile_ours(name, Path(folder), options)
            results[name] = (ours, theirs[name])
            if options.sass:
                options.sass.mkdir(parents=True, exist_ok=True)
                (options.sass / f"{name}.ours").write_text("\n".join(code) + "\n")
                (options.sass / f"{name}.nvcc").write_text("\n".join(listing[name]) + "\n")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--toolkit", default="/usr/local/cuda", help="the CUDA toolkit's folder")
    parser.add_argument("--sass", type=Path, default=None, help="folder to write the machine code to")
    options = parser.parse_args()
    print(f"{'kernel':<20}{'instructions':>22}{'registers':>16}{'loads':>12}{'stores':>12}")
    print(f"{'':<20}{'ours':>7}{'nvcc':>7}{'ratio':>8}" + f"{'ours':>9}{'nvcc':>7}" + f"{'ours':>7}{'nvcc':>5}" * 2)
    failed = False
    for name, (ours, theirs) in compare(options).items():
        wrong = complaints(ours, theirs)
        failed |= bool(wrong)
        print(
            f"{name:<20}{ours.instructions:>7}{theirs.instructions:>7}"
            f"{ours.instructions / theirs.instructions:>8.2f}{ours.registers:>9}{theirs.registers:>7}"
            f"{ours.load_bits:>7}{theirs.load_bits:>5}{ours.store_bits:>7}{theirs.store_bits:>5}"
            + (f"  too many or narrow: {', '.join(wrong)}" if wrong else "")
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
