#!/usr/bin/env python3
"""Gridloom's time over that of PyTorch (torch.compile), ONNX Runtime and TensorRT on this GPU: the ratio table.

    python3 gpu_vs_peers.py PACK [--model bert-base] [--precision bf16]

PACK is what `scripts/gpu-check --pack` wrote, unpacked; gpu-check itself ends with this table. All times are medians of
device time, inputs and weights on the device. A peer that this Python cannot import is reported as not installed. With
--device cpu the peers alone run, on the processor: that shows that they work, and compares nothing."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]  # in a pack, and in a checkout

import numpy as np  # noqa: E402
from hardware.report import MEASURED, NONE, Missing, OutOfTime, Problem, Report, call, one_line, time_limit  # noqa: E402

RUNS = 30
TORCH_TYPES = {"f32": "float32", "tf32": "float32", "bf16": "bfloat16", "f16": "float16"}


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def sizes(model: dict, dims: dict[str, int]) -> dict[str, int]:
    return {**{name: size[0] for name, size in model["dims"].items()}, **dims}


def torch_ms(pack: Path, model: dict, dims: dict[str, int], precision: str, device: str) -> float:
    """The median of torch.compile, with CUDA graphs where it supports them; on the CPU that of plain PyTorch."""
    if not installed("torch"):
        raise Missing("not installed")
    import torch
    import torch_models

    warnings.simplefilter("ignore")
    if device == "cuda" and not torch.cuda.is_available():
        raise Missing("this PyTorch sees no GPU")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    made = torch_models.make(model["source"], model["options"], sizes(model, dims))
    if made is None:
        raise Missing("not written in PyTorch here")
    dtype = getattr(torch, TORCH_TYPES[precision])
    module, inputs = made
    module = module.eval().to(device, dtype)
    inputs = [i.to(device, dtype) if i.is_floating_point() else i.to(device) for i in inputs]
    if inputs[0].dim() == 4:  # the fastest layout for convolutions
        module = module.to(memory_format=torch.channels_last)
        inputs[0] = inputs[0].contiguous(memory_format=torch.channels_last)
    run = torch.compile(module, mode="reduce-overhead") if device == "cuda" else module
    with torch.inference_mode():
        for _ in range(5):
            run(*inputs)
        times = []
        for _ in range(RUNS if device == "cuda" else 3):
            if device == "cuda":
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                run(*inputs)
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
            else:
                begin = time.perf_counter()
                run(*inputs)
                times.append((time.perf_counter() - begin) * 1e3)
    del run, module, inputs
    if device == "cuda":
        torch.cuda.empty_cache()
    return statistics.median(times)


def onnxruntime_ms(pack: Path, model: dict, dims: dict[str, int], precision: str, device: str) -> float:
    """Median of ONNX Runtime's CUDA provider; inputs and outputs stay on the device."""
    if not installed("onnxruntime"):
        raise Missing("not installed")
    import onnxruntime

    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise Missing(f"this ONNX Runtime has no {provider}")
    if precision not in ("f32", "tf32"):
        raise Missing(f"the model is f32; ONNX Runtime does not make it {precision}")
    options = {"use_tf32": int(precision == "tf32")} if device == "cuda" else {}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(pack / model["onnx"]), settings, providers=[(provider, options)])
    binding, rng = session.io_binding(), np.random.default_rng(0)
    for value in session.get_inputs():
        shape = [sizes(model, dims)[size] if isinstance(size, str) else size for size in value.shape]
        array = np.ones(shape, np.int64) if value.type == "tensor(int64)" else rng.standard_normal(shape, np.float32)
        binding.bind_ortvalue_input(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
    for value in session.get_outputs():
        binding.bind_output(value.name, device)
    times = []
    for number in range(RUNS + 5 if device == "cuda" else 3):
        binding.synchronize_inputs()
        begin = time.perf_counter()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        if number >= 5 or device != "cuda":
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def tensorrt_ms(pack: Path, model: dict, dims: dict[str, int], precision: str, device: str) -> float:
    """Median GPU time by TensorRT's own trtexec."""
    program = shutil.which("trtexec")
    if device != "cuda" or not program:
        raise Missing("trtexec is not on PATH" if device == "cuda" else "TensorRT needs a GPU")
    manifest_inputs = model["inputs"]
    chosen = sizes(model, dims)
    shapes = [f"{n}:{'x'.join(str(chosen.get(d, d)) for d in shape)}" for n, shape in manifest_inputs.items()]
    flags = {"f32": ["--noTF32"], "tf32": [], "bf16": ["--bf16"], "f16": ["--fp16"]}[precision]
    command = [
        program,
        f"--onnx={pack / model['onnx']}",
        f"--shapes={','.join(shapes)}",
        f"--iterations={RUNS}",
        *flags,
    ]
    result = call([*command, "--noDataTransfers", "--useCudaGraph"])
    found = re.search(r"GPU Compute Time:.*?median = ([0-9.]+) ms", result.stdout)
    if not found:
        raise Problem(
            one_line(result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "trtexec printed no time")
        )
    return float(found[1])


PEERS = {"PyTorch": torch_ms, "ONNX Runtime": onnxruntime_ms, "TensorRT": tensorrt_ms}


def compare_all(check, measured: list[dict], device: str = "cuda") -> None:
    """One line per timed model and peer in `check.report`: our device time, theirs, and the ratio."""
    report: Report = check.report
    section = (
        "peers (their time on the device; ours over theirs)"
        if device == "cuda"
        else "peers on the CPU (compares nothing)"
    )
    for peer, time_of in PEERS.items():
        absent = None
        for entry in measured:
            plan = entry["plan"]
            name = f"{peer}, {plan['model']} {plan['precision']}, {entry['label']}"
            if absent:
                continue

            def run(plan=plan, entry=entry, time_of=time_of) -> tuple[str, str, dict]:
                theirs = time_of(check.pack, check.model(plan), entry["dims"], plan["precision"], device)
                ours = entry.get("device_ms")
                if not ours:
                    return MEASURED, f"{theirs:.3f} ms", {"peer_ms": theirs}
                return (
                    MEASURED,
                    f"{theirs:.3f} ms; ours {ours:.3f} ms: {ours / theirs:.2f}",
                    {"peer_ms": theirs, "ours_ms": ours},
                )

            # A peer's failure must not fail the check.
            try:
                with time_limit(min(90, max(report.left, 0.01))):
                    begin = time.monotonic()
                    result, text, figures = run()
                    report.add(section, name, result, text, time.monotonic() - begin, figures)
            except Missing as missing:
                if str(missing) == "not installed" or "on PATH" in str(missing):
                    absent = str(missing)
                    name = peer
                report.add(section, name, NONE, str(missing))
            except (OutOfTime, Problem) as problem:
                report.add(section, name, NONE, str(problem))
            except Exception as error:
                report.add(section, name, NONE, f"{type(error).__name__}: {error}")
    if not measured:
        report.add(section, "all", NONE, "nothing of ours was timed to compare with")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path, help="an unpacked pack of gpu-check")
    parser.add_argument("--model", action="append", help="only these models; repeatable")
    parser.add_argument("--precision", action="append", choices=list(TORCH_TYPES), help="only these; repeatable")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from hardware import gpu as gpus
    from hardware import recipes
    from hardware.driver import Gpu, NoGpu, find_libraries
    from hardware.programs import Gridloom

    if not (options.pack / "pack.json").exists():
        parser.error(f"{options.pack} is not a pack; make one with scripts/gpu-check --pack")
    report = Report("gpu_vs_peers", 1800)

    def chosen(plan: dict) -> bool:
        return (not options.model or plan["model"] in options.model) and (
            not options.precision or plan["precision"] in options.precision
        )

    with tempfile.TemporaryDirectory() as work:
        if options.device == "cpu":
            check = PeersAlone(options.pack, report)
            needed = [p for p in check.document["plans"] if chosen(p) and check.model(p)["timed"] and not p["mesh"]]
            measured = [
                {"plan": p, "label": label, "dims": dims}
                for p in needed if p["target"] == needed[0]["target"]
                for label, dims in check.model(p)["timed"].items()
            ]  # fmt: skip
            wanted = sorted({options.pack / check.model(p)["recipe"] for p in needed if "recipe" in check.model(p)})
            recipes.make(wanted, options.pack / "gridloom_weights.py")
        else:
            try:
                gpu = Gpu()
            except NoGpu as error:
                print(f"no GPU: {error}")
                return 77
            versions, folders = find_libraries()
            check = gpus.Check(options.pack, report, Gridloom(options.pack / "bin/gridloom", Path(work), folders), gpu)
            check.document["plans"] = [p for p in check.document["plans"] if chosen(p)]
            check.environment(versions)
            check.weights(600)
            measured = check.times_section()
        compare_all(check, measured, options.device)
    return report.finish(options.json)


class PeersAlone:
    """Replaces the check that `compare_all` needs, if there is no GPU."""

    def __init__(self, pack: Path, report: Report):
        self.pack, self.report = pack, report
        self.document = json.loads((pack / "pack.json").read_text())

    def model(self, plan: dict) -> dict:
        return self.document["models"][plan["model"]]


if __name__ == "__main__":
    sys.exit(main())
