"""The checks of gpu-check on the machine with the GPU."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from . import recipes, steps
from .driver import Gpu, driver_version, find_libraries
from .folding import unfold
from .models import TOLERANCES, dims_text
from .programs import Gridloom, Reference, compare, need
from .report import FAIL, MEASURED, NONE, PASS, Missing, Problem, Report, call, one_line
from .training import train


@dataclasses.dataclass
class Check:
    """A run of gpu-check: the pack, the program that runs its plans, and the report."""

    pack: Path
    report: Report
    gridloom: Gridloom
    gpu: Gpu
    document: dict = dataclasses.field(init=False)

    def __post_init__(self):
        self.document = json.loads((self.pack / "pack.json").read_text())
        for folder in {(self.pack / plan["path"]).parent for plan in self.plans() + self.plans(mesh=True)}:
            unfold(folder)
        self.ceilings: dict[str, float] = {}
        self.outputs: dict[str, dict[str, np.ndarray]] = {}

    # Plans of the pack.

    def plans(self, mesh: bool = False, check: bool | None = None, trains: bool = False) -> list[dict]:
        """Plans for this GPU, for several ranks or for one, for inference or for training."""
        chosen = [
            p
            for p in self.document["plans"]
            if p["target"] == f"cuda:{self.gpu.chip}" and bool(p["mesh"]) == mesh and ("losses" in self.model(p)) == trains
        ]
        if check is not None:
            chosen = [p for p in chosen if bool("reference" in self.model(p)) == check]
        return chosen

    def compiled(self) -> list[dict]:
        """Plans that compiled; correctness has reported the others."""
        return [plan for plan in self.plans() if "refused" not in plan]

    def timed(self) -> Iterator[tuple[dict, str, dict[str, int]]]:
        """The plans to time, each with a name of the sizes, and the sizes."""
        for plan in self.compiled():
            if plan["precision"] in self.model(plan)["timed_in"]:
                for label, dims in self.model(plan)["timed"].items():
                    yield plan, label, dims

    def model(self, plan: dict) -> dict:
        return self.document["models"][plan["model"]]

    def folder(self, plan: dict) -> Path:
        if "refused" in plan:
            raise Problem(f"not compiled: {plan['refused']}")
        model = self.pack / self.model(plan)["onnx"]
        if "recipe" in self.model(plan) and not model.with_name(model.name + ".data").exists():
            raise Problem("its weights could not be made")
        return self.pack / plan["path"]

    def run(self, plan: dict, *options, env=None) -> dict[str, np.ndarray]:
        model = self.model(plan)
        sizes = ["--dim", dims_text(model["checked"])] if model["checked"] else []
        reference = Reference(self.pack / model["reference"])
        taken = {i["name"] for i in self._manifest(plan)["entries"][0]["specialisations"][0]["inputs"]}
        inputs = {name: value for name, value in reference.inputs.items() if name in taken}
        return self.gridloom.run(self.folder(plan), inputs, *sizes, *options, env=env)

    def _manifest(self, plan: dict) -> dict:
        return json.loads((self.folder(plan) / "manifest.json").read_text())

    def times(self, text: str, **figures) -> tuple[str, str, dict]:
        """A measured result; on a fake GPU only that the check ran, since its times mean nothing."""
        if self.gpu.fake:
            return PASS, "fake GPU: ran; its times mean nothing", {}
        return MEASURED, text, figures

    # Sections.

    def environment(self, versions: dict[str, str]) -> None:
        memory = f", {self.gpu.memory / 2**30:.0f} GiB" if self.gpu.memory else ""
        found = {
            "GPU": f"{self.gpu.name}, {self.gpu.chip}{memory}",
            "driver": f"{driver_version()}, CUDA {self.gpu.cuda}",
            **versions,
            "pack": f"{self.document['gridloom']} for {', '.join(self.document['chips'])}",
        }
        self.report.environment.update(found, fake=self.gpu.fake)
        for name, text in found.items():
            self.report.add("environment", name, "", text)

    def weights(self, limit: float) -> None:
        chosen = sorted(
            {self.pack / m["recipe"] for p in self.plans() + self.plans(True) if "recipe" in (m := self.model(p))}
        )

        def make() -> str:
            size = recipes.make(chosen, self.pack / "gridloom_weights.py")
            return f"{size / 1e9:.2f} GB of {len(chosen)} models made again" if size else "are here from an earlier run"

        if chosen:
            self.report.check("weights", "random weights, bit for bit", limit, make)

    def run_all(self, plans: list[dict], *options) -> Iterator[tuple[dict, Callable[[], dict[str, np.ndarray]]]]:
        """Yields each plan with a function that returns its outputs or raises its error. Several plans run at once: most of a run is
        start-up, and none of these is timed."""
        workers = 1 if self.gpu.fake else max(1, min(4, (os.cpu_count() or 2) // 2))
        with ThreadPoolExecutor(workers) as pool:
            waiting = [(plan, pool.submit(self.run, plan, *options)) for plan in plans]
            for plan, future in waiting:
                yield plan, future.result
                if self.report.left <= 0:
                    pool.shutdown(wait=False, cancel_futures=True)

    def correctness(self) -> None:
        for plan, outputs_of in self.run_all(self.plans(check=True)):

            def run(plan=plan, outputs_of=outputs_of) -> str:
                outputs = outputs_of()
                tolerance = TOLERANCES[plan["precision"]]
                worst = Reference(self.pack / self.model(plan)["reference"]).compare(outputs, tolerance)
                if plan["precision"] == "f32":
                    self.outputs[plan["model"]] = outputs
                return f"{worst:.1e} of the largest value from ONNX Runtime's; allowed {tolerance:.0e}"

            self.report.check("correctness", f"{plan['model']}, {plan['precision']}", 60, run)

    def loopback(self) -> None:
        for plan, outputs_of in self.run_all(self.plans(mesh=True), "--transport", "loopback"):
            name = f"{plan['model']}, {dims_text(plan['mesh'])}"

            def run(plan=plan, outputs_of=outputs_of) -> str:
                if "refused" in plan:
                    raise Missing(f"not compiled: {plan['refused']}")
                return self.against_one_rank(plan, outputs_of())

            self.report.check("ranks that share this GPU (loopback) against one rank", name, 60, run)

    def against_one_rank(self, plan: dict, outputs: dict[str, np.ndarray]) -> str:
        if plan["model"] not in self.outputs:  # the correctness section was not selected
            alone = next(p for p in self.plans(check=True) if (p["model"], p["precision"]) == (plan["model"], "f32"))
            self.outputs[plan["model"]] = self.run(alone)
        worst = 0.0
        for name, want in self.outputs[plan["model"]].items():
            largest = float(np.abs(want).max(initial=0))
            worst = max(worst, compare(name, outputs[name], want, TOLERANCES["f32"], largest))
        return f"{worst:.1e} of the largest value from one rank's"

    def training(self) -> None:
        """Steps of `gridloom train` on one rank, and on ranks that share this GPU, against the losses of a CPU."""
        for plan in self.plans(trains=True) + self.plans(mesh=True, trains=True):
            ranks = f", {dims_text(plan['mesh'])} (loopback)" if plan["mesh"] else ""

            def run(plan=plan) -> str:
                model, tolerance = self.model(plan), TOLERANCES[plan["precision"]]
                want = np.load(self.pack / model["losses"])
                options = ["--transport", "loopback"] if plan["mesh"] else []
                losses = train(self.gridloom, self.folder(plan), self.pack / model["data"], len(want), *options)
                worst = compare("loss", losses, want, tolerance, float(np.abs(want).max()))
                return f"{len(want)} steps: losses {worst:.1e} of the largest from a CPU's; allowed {tolerance:.0e}"

            self.report.check("training", f"{plan['model']}, {plan['precision']}{ranks}", 90, run)

    def graphs(self) -> None:
        for plan in [p for p in self.plans(check=True) if p["precision"] == "f32"][:3]:

            def run(plan=plan) -> str:
                replayed, launched = self.run(plan, "--repeat", 3), self.run(plan, "--repeat", 3, "--no-graphs")
                for name in launched:
                    if replayed[name].tobytes() != launched[name].tobytes():
                        raise Problem(f"output {name} is not the same, bit for bit")
                return "the same bits as launched one by one"

            self.report.check("CUDA graphs", plan["model"], 60, run)

    def nccl(self, versions: dict[str, str]) -> None:
        section = "NCCL"

        def smoke() -> str:
            need(versions["NCCL"] != "not found", "NCCL is not installed")
            self.gridloom.call("bench", "all_reduce", "-n", 1, "--transport", "nccl", "-b", "1K", "-e", "4M", "-f", 8)
            return "a communicator of one rank; all_reduce of 1 KiB to 4 MiB is right"

        self.report.check(section, "one rank", 60, smoke)

        def share() -> tuple[str, str, dict]:
            need(versions["NCCL"] != "not found", "NCCL is not installed")
            command = [
                "bench",
                "all_reduce",
                "-n",
                2,
                "--transport",
                "nccl",
                "--share-gpu",
                "-b",
                "1K",
                "-e",
                "1M",
                "-f",
                32,
            ]
            try:
                self.gridloom.call(*command, "--iters", 3, "--timeout", 30)
            except Problem as problem:  # NCCL does not promise it, so either outcome is valid
                return MEASURED, f"does not work: {problem}", {"works": False}
            return self.times("works: all_reduce of 1 KiB to 1 MiB is right", works=True)

        self.report.check(section, "two processes on one GPU (an attempt)", 70, share)

    def ceilings_section(self) -> None:
        section = "what this GPU can do at most"
        for plan in [p for p in self.plans(check=False) if p["model"] == "ceiling-matmul"]:

            def products(plan=plan) -> tuple[str, str, dict]:
                rate = max(steps.library_rate(steps.measure(self.gridloom, self.folder(plan), {}))[0] for _ in range(2))
                need(rate > 0, "the trace has no matrix product")
                self.ceilings[plan["precision"]] = rate
                size = self.model(plan)["options"]["size"]
                return self.times(f"{rate:.0f} TFLOP/s (four products of {size} x {size})", tflops=rate)

            self.report.check(section, f"matrix products, {plan['precision']}", 60, products)
        for plan in [p for p in self.plans(check=False) if p["model"] == "ceiling-copy"]:

            def copy(plan=plan) -> tuple[str, str, dict]:
                moved = 2 * 4 * self.model(plan)["options"]["size"]
                took = steps.measure(self.gridloom, self.folder(plan), {})
                longest = max((s["ms"] for s in took), default=0)
                need(longest > 0, "the trace has no kernel")
                self.ceilings["copy"] = moved / longest * 1e-6
                return self.times(f"{self.ceilings['copy']:.0f} GB/s read and written", gb_per_s=self.ceilings["copy"])

            self.report.check(section, "memory, a kernel that reads and writes", 60, copy)

    def times_section(self) -> list[dict]:
        """Times the timed models. Returns the measurements, for comparisons."""
        measured = []
        for plan, label, dims in self.timed():

            def time_it(plan=plan, label=label, dims=dims) -> tuple[str, str, dict]:
                options = ["--dim", dims_text(dims)] if dims else []
                bench = ["bench", self.folder(plan), *options, "--iters", 3 if self.gpu.fake else 50]
                plain = self.gridloom.json(*bench)
                # Times the libraries' algorithms and stores the fastest with the plan.
                made_up = steps.made_up_inputs(self.folder(plan), dims)
                self.gridloom.call("run", self.folder(plan), *options, *made_up, "--autotune")
                tuned = self.gridloom.json(*bench)
                if not self.gpu.fake:
                    measured.append({"plan": plan, "label": label, "dims": dims, **tuned})
                text = f"{describe_bench(tuned)}; before the libraries were tuned {plain['device_ms']:.3f} ms"
                return self.times(text, **tuned, untuned=plain)

            self.report.check("times", f"{plan['model']} {plan['precision']}, {label}", 90, time_it)
        return measured

    def shares(self) -> None:
        """The share of the ceilings that library calls and fused kernels reach."""
        for plan, label, dims in self.timed():

            def share(plan=plan, dims=dims) -> tuple[str, str, dict]:
                took = steps.measure(self.gridloom, self.folder(plan), dims)
                rate, part = steps.library_rate(took)
                moved, kernels = steps.kernels_rate(took)
                best, copy = self.ceilings.get(plan["precision"]), self.ceilings.get("copy")
                text = [f"libraries {rate:.1f} TFLOP/s" + (f" = {rate / best:.0%} of the ceiling" if best else "")]
                text += [f"{part:.0%} of the time"]
                if kernels:
                    text += [
                        f"{kernels} kernels of 1 MiB and more: median {moved:.0f} GB/s"
                        + (f" = {moved / copy:.0%}" if copy else "")
                    ]
                figures = {"tflops": rate, "ceiling_tflops": best, "library_share": part, "kernels": kernels}
                figures.update(kernels_gb_per_s=moved, copy_gb_per_s=copy)
                return self.times(", ".join(text), **figures)

            self.report.check("shares of the ceilings", f"{plan['model']} {plan['precision']}, {label}", 60, share)

    def sanitizer(self) -> None:
        def run(plan: dict) -> str:
            tool = shutil.which("compute-sanitizer")
            need(tool, "compute-sanitizer is not on PATH")
            need(not self.gpu.fake, "a fake GPU checks every access itself")
            command = [tool, "--error-exitcode", 9, self.gridloom.program, "run", self.folder(plan)]
            result = call(
                [*command, *steps.made_up_inputs(self.folder(plan), self.model(plan)["checked"])], self.gridloom.env
            )
            if result.returncode:
                lines = [line for line in (result.stdout + result.stderr).splitlines() if "=====" in line]
                raise Problem(one_line(" ".join(lines[:3]) or f"exited with {result.returncode}"))
            return "no access out of bounds"

        for plan in [p for p in self.plans(check=True) if p["precision"] == "f32" and "recipe" not in self.model(p)][
            :2
        ]:
            self.report.check("compute-sanitizer", plan["model"], 90, lambda plan=plan: run(plan))

    def peers(self, measured: list[dict], compare_all: Callable[[Check, list[dict]], None]) -> None:
        if self.gpu.fake:
            self.report.add("peers", "all", NONE, "a fake GPU compares with nothing")
        else:
            compare_all(self, measured)


def describe_bench(figures: dict) -> str:
    """The times of `bench --format json`: with CUDA graphs, and with the steps launched and timed one by one."""
    return (
        f"{figures['device_ms']:.3f} ms on the device (gaps {figures['gap_percent']:.0f}%), {figures['median_ms']:.3f} ms with "
        f"inputs and outputs; step by step {figures['stepped_device_ms']:.3f} ms (gaps {figures['stepped_gap_percent']:.0f}%)"
    )


def check_gpu(pack: Path, report: Report, work: Path, compare_all, sections: list[str]) -> None:
    """Runs the chosen sections. Raises NoGpu if there is no GPU."""
    gpu = Gpu()
    versions, folders = find_libraries()
    gridloom = Gridloom(pack / "bin" / "gridloom", work, folders)
    check = Check(pack, report, gridloom, gpu)
    check.environment(versions)
    if not check.plans():
        chips = sorted({p["target"] for p in check.document["plans"]})
        report.add(
            "environment",
            "plans",
            FAIL,
            f"none for {gpu.chip}; the pack has {', '.join(chips)}: pack with --chip {gpu.chip}",
        )
        return
    check.weights(180)
    measured: list[dict] = []
    run = {
        "correctness": check.correctness,
        "loopback": check.loopback,
        "training": check.training,
        "graphs": check.graphs,
        "nccl": lambda: check.nccl(versions),
        "ceilings": check.ceilings_section,
        "times": lambda: measured.extend(check.times_section()),
        "shares": check.shares,
        "sanitizer": check.sanitizer,
        "peers": lambda: check.peers(measured, compare_all),
    }
    for section, function in run.items():
        if section in sections:
            function()


SECTIONS = (
    "correctness",
    "loopback",
    "training",
    "graphs",
    "nccl",
    "ceilings",
    "times",
    "shares",
    "sanitizer",
    "peers",
)
