"""Makes the packs of gpu-check and cluster-check, for machines without compiler, MLIR or internet: the runtime, plans, models, and
reference outputs. Needs a built checkout with onnx and ONNX Runtime."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from .folding import fold
from .models import TRAINING_STEPS, Model, dims_text
from .programs import Gridloom, Reference
from .recipes import Recorder
from .training import train
from .report import one_line

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 64 << 20
# Libraries that every Linux has in a suitable version; all others are packed with the program.
SYSTEM_LIBRARIES = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux", "linux-vdso")


def load_module(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look modules up there
    spec.loader.exec_module(module)
    return module


class Packer:
    """Fills the folder `out`. `tools` is the folder of gridloom and gridloom-compile."""

    def __init__(self, out: Path, program: str, tools: Path, jobs: int, seed: int = 0):
        self.out, self.program, self.tools, self.jobs, self.seed = out, program, tools, jobs, seed
        self.models: dict[str, dict] = {}
        self.plans: list[dict] = []
        self.waiting: list[tuple[dict, list]] = []
        for folder in ("bin", "lib", "models", "plans", "references"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    # Models and reference outputs.

    def add_model(self, model: Model) -> None:
        """Writes the model, its recipe and its reference outputs, by ONNX Runtime at the sizes to compare."""
        import onnx

        if model.name in self.models:
            raise ValueError(f"two models are called {model.name}")
        path = self.out / "models" / f"{model.name}.onnx"
        kind, name = model.source.split(":")
        inputs = None
        if kind == "real":
            inputs = self._write_real(name, path)
        else:
            self._write_zoo(kind, name, model, path)
        entry = {"onnx": f"models/{path.name}", "state": model.state, "timed": model.timed, "dims": model.dims}
        entry["timed_in"] = model.timed_in
        entry["source"], entry["options"] = model.source, model.options
        graph = onnx.load(str(path), load_external_data=False).graph
        entry["inputs"] = {
            i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.input
        }
        if path.with_suffix(".recipe.json").exists():
            entry["recipe"] = f"models/{path.stem}.recipe.json"
        if model.check:
            sizes = {**{name: size[0] for name, size in model.dims.items()}, **model.checked}
            entry["checked"] = {n: s for n, s in sizes.items() if len(model.dims.get(n, ())) > 1}
            entry["reference"] = f"references/{model.name}.npz"
            self._write_reference(path, graph, model, sizes, inputs)
        self.models[model.name] = entry

    def _write_zoo(self, kind: str, name: str, model: Model, path: Path) -> None:
        import onnx
        from gridloom import zoo

        store = zoo.ExternalFile(path) if model.generated else None
        weights = zoo.Random(self.seed)
        recorder = Recorder(weights, store) if store else None
        weights, store = recorder or weights, recorder
        if kind == "made":
            made = MADE[name](weights, store, **model.options)
        elif name == "bert":
            made = zoo.bert(zoo.BertConfig(**model.options), weights, name, store)
        elif name == "mlp":
            made = zoo.mlp(list(model.options["sizes"]), zoo.Random(self.seed, scale=0.2))
        else:
            made = zoo.MODELS[name].make(weights=weights, store=store, **model.options)
        onnx.save_model(made, str(path))
        if recorder:
            recorder.finish(self.seed, path.with_suffix(".recipe.json"))

    def _write_real(self, name: str, path: Path) -> dict:
        """Writes a trained model with the shapes of real inputs. Returns the inputs."""
        import onnx
        from gridloom import backend

        found = load_module("real_models", ROOT / "test/python/real_models.py").MODELS[name]
        inputs = found.inputs()
        onnx.save_model(backend.specialise(onnx.load(str(found.path())), inputs), str(path))
        fixed = backend.fixed_inputs(onnx.load(str(found.path())))
        return {name: value for name, value in inputs.items() if name not in fixed}

    def _write_reference(self, path: Path, graph, model: Model, sizes: dict, inputs: dict | None) -> None:
        import onnxruntime
        from gridloom import zoo

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = inputs or zoo.random_inputs(graph, sizes, model.vocabulary)
        states = [n for n in inputs if model.state and n.startswith(model.state.split("=")[0].rstrip("*"))]
        for name in states:  # states are zero in a new session
            inputs[name] = np.zeros_like(inputs[name])
        kept = model.state.split("=")[1].rstrip("*") if model.state else None
        names = [o.name for o in session.get_outputs() if not kept or not o.name.startswith(kept)]
        outputs = dict(zip(names, session.run(names, inputs)))
        Reference.write(
            self.out / "references" / f"{model.name}.npz", {n: v for n, v in inputs.items() if n not in states}, outputs
        )

    def add_training(self, model: Model) -> None:
        """Writes training samples and the losses of the steps on a CPU rank: references/NAME-data.npz and NAME-losses.npy."""
        import onnx
        from gridloom import zoo

        entry = self.models[model.name]
        graph = onnx.load(str(self.out / entry["onnx"]), load_external_data=False).graph
        sizes = {name: size[0] for name, size in model.dims.items()}
        samples = {**sizes, "batch": 3 * sizes["batch"]}
        data = zoo.random_inputs(graph, samples, model.vocabulary)
        shape = [d.dim_value or samples[d.dim_param] for d in graph.output[0].type.tensor_type.shape.dim]
        data["labels"] = np.random.default_rng(self.seed).integers(0, model.labels, shape[:-1])
        path = self.out / "references" / f"{model.name}-data.npz"
        np.savez(path, **data)
        plan = self.out / "plans" / f"{model.name}-cpu.plan"
        command = self._write_command(model, plan, "cpu")
        subprocess.run([self.tools / "gridloom", *map(str, command)], check=True)
        losses = train(Gridloom(self.tools / "gridloom", self.out), plan, path, TRAINING_STEPS)
        shutil.rmtree(plan)
        np.save(path.with_name(f"{model.name}-losses.npy"), losses)
        entry["data"], entry["losses"] = f"references/{path.name}", f"references/{model.name}-losses.npy"

    # Plans.

    def add_plan(self, model: Model, target: str, precision: str = "f32", mesh: dict[str, int] | None = None) -> None:
        """Adds a plan to compile."""
        mesh = mesh or {}
        words = [model.name, precision, *(f"{axis}{size}" for axis, size in mesh.items())]
        plan = {
            "path": f"plans/{target.replace('cuda:', '')}/{'-'.join(words)}.plan",
            "model": model.name,
            "target": target,
            "precision": precision,
            "mesh": mesh,
        }
        command = self._write_command(model, self.out / plan["path"], target)
        if mesh:
            command += ["--mesh", dims_text(mesh)]
        if precision != "f32":
            command += ["--precision", precision]
        self.waiting.append((plan, command))

    def _write_command(self, model: Model, plan: Path, target: str) -> list:
        command = ["compile", self.out / self.models[model.name]["onnx"], "-o", plan, "--target", target, "-q"]
        for name, sizes in model.dims.items():
            if any(name in shape for shape in self.models[model.name]["inputs"].values()):
                command += ["--dim", f"{name}={','.join(map(str, sizes))}"]
        if model.state:
            command += ["--state", model.state]
        if model.loss:
            command += ["--train", "--loss", model.loss, "--optimizer", model.optimizer]
        return command

    def compile(self) -> None:
        """Compiles all plans. A refusal is stored with its error line, which the check reports."""

        def one(job) -> dict:
            plan, command = job
            result = subprocess.run([self.tools / "gridloom", *map(str, command)], capture_output=True, text=True)
            if result.returncode:
                lines = result.stderr.strip().splitlines() or [f"exited with {result.returncode}"]
                errors = [line for line in lines if "error: " in line] or lines
                return {**plan, "refused": one_line(errors[0].partition("error: ")[2] or errors[0], 160)}
            folder = self.out / plan["path"]
            shutil.rmtree(folder / "ir", ignore_errors=True)  # like the report for people only, and most of the bytes
            (folder / "report.json").unlink()
            (folder / "timeline.json").unlink()
            return plan

        print(f"compiling {len(self.waiting)} plans", flush=True)
        with ThreadPoolExecutor(self.jobs) as pool:
            for number, plan in enumerate(pool.map(one, self.waiting), 1):
                self.plans.append(plan)
                if "refused" in plan:
                    print(f"  {plan['path']}: {plan['refused']}", flush=True)
                elif number % 20 == 0:
                    print(f"  {number} of {len(self.waiting)}", flush=True)
        self.waiting = []

    # The program itself.

    def add_program(self) -> None:
        program = self.out / "bin" / "gridloom"
        shutil.copy2(self.tools / "gridloom", program)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            words = line.split()
            if "=>" in words and not words[0].startswith(SYSTEM_LIBRARIES):
                shutil.copy2(words[2], self.out / "lib" / words[0])
        strip = shutil.which("strip") or shutil.which("llvm-strip-22")
        for file in [program, *(self.out / "lib").iterdir()]:
            file.chmod(0o755)
            if strip:
                subprocess.run([strip, file], check=False)
        scripts = ROOT / "scripts"
        shutil.copy2(scripts / self.program, self.out / self.program)
        shutil.copytree(
            scripts / "hardware",
            self.out / "hardware",
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
        shutil.copy2(ROOT / "python/gridloom/zoo/weights.py", self.out / "gridloom_weights.py")
        for peer in ("gpu_vs_peers.py", "torch_models.py"):
            shutil.copy2(ROOT / "bench" / peer, self.out / peer)

    def fold(self) -> None:
        """Compresses the folders that no machine reads in the pack: the program, and the plans of each target."""
        for folder in (self.out / "bin", self.out / "lib", *sorted((self.out / "plans").iterdir())):
            fold(folder)

    def finish(self, **more) -> None:
        """Writes pack.json, and removes weights that will be generated again."""
        for entry in self.models.values():
            if "recipe" in entry:
                (self.out / f"{entry['onnx']}.data").unlink()
        version = subprocess.run([self.tools / "gridloom", "--version"], capture_output=True, text=True, check=True)
        document = {"schema": 1, "program": self.program, "gridloom": version.stdout.strip(), **more}
        document.update(models=self.models, plans=self.plans)
        (self.out / "pack.json").write_text(json.dumps(document, indent=1) + "\n")


def archive(folder: Path, out: Path) -> int:
    """Packs `folder` into the archive `out` (.tar.gz or .tar.xz). Returns its size in bytes."""
    form = {".gz": "w:gz", ".xz": "w:xz"}[out.suffix]
    with tarfile.open(out, form) as tar:
        tar.add(folder, arcname=out.name.split(".tar")[0])
    return out.stat().st_size


def folder_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def _matmul(weights, store, size: int):
    """A chain of four products of size x size matrices. Operands are computed on the device, and the output is small."""
    import onnx
    from gridloom.zoo.graph import FLOAT, GraphBuilder

    g = GraphBuilder("matmul", 17, store)
    x = g.op("Mul", g.input("column", FLOAT, [size, 1]), g.input("row", FLOAT, [1, size]))
    matrix = g.weight("matrix", weights.get("matrix", (size, size), scale=size**-0.5))
    for _ in range(4):
        x = g.op("MatMul", x, matrix)
    g.output("means", g.axes_op("ReduceMean", x, [1], since=18, keepdims=0), onnx.TensorProto.FLOAT, [size])
    return g.build()


def _copy(weights, store, size: int):
    """A state of `size` floats that each run reads and writes."""
    from gridloom.zoo.graph import FLOAT, GraphBuilder

    g = GraphBuilder("copy", 17)
    state = g.input("state", FLOAT, [size])
    step = g.input("step", FLOAT, [1])
    following = g.op("Add", g.op("Mul", state, g.constant(0.5)), step)
    zero, one = g.constant([0], np.int64), g.constant([1], np.int64)
    g.output("first", g.op("Slice", following, zero, one, zero), FLOAT, [1])
    g.output("next_state", following, FLOAT, [size])
    return g.build()


MADE = {"matmul": _matmul, "copy": _copy}
