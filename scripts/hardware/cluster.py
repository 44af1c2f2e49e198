"""The steps of cluster-check on each rank. All ranks run the same list of steps; rank 0 evaluates and reports."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .driver import Gpu, NoGpu
from .models import TOLERANCES, dims_text
from .programs import Gridloom, Reference, compare
from .report import MEASURED, PASS, Missing, Problem, Report, one_line
from .world import Place, World, environment

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
# A dead peer is noticed within LIVENESS seconds; then a process needs up to SLACK seconds to end on a busy machine.
LIVENESS, SLACK = 1.0, 4.0
VICTIM_LIVES = 3.0  # seconds until the victim is killed


@dataclasses.dataclass
class Result:
    """How a rank's process ended. Times are on the clock that all processes of a machine share."""

    code: int
    out: str
    err: str
    end: float
    killed_at: float = 0.0

    def last_line(self) -> str:
        lines = [line for line in self.err.strip().splitlines() if line.strip()]
        return one_line(lines[-1] if lines else f"exited with {self.code}")


@dataclasses.dataclass
class Step:
    """A command that groups of ranks run at the same time, each group as its own job. `judge` gets the results by rank and returns a
    result for Report.check."""

    key: str
    section: str
    name: str
    groups: list[list[int]]
    command: list
    judge: Callable[[dict[int, Result]], str | tuple[str, str, dict]]
    limit: float = 60.0
    victim: int | None = None


def axis_groups(mesh: dict[str, int], axis: str) -> list[list[int]]:
    """The groups of ranks that differ only in `axis`; ranks are row-major over the mesh."""
    ranks = np.arange(int(np.prod(list(mesh.values())))).reshape(list(mesh.values()))
    return np.moveaxis(ranks, list(mesh).index(axis), -1).reshape(-1, mesh[axis]).tolist()


class Cluster:
    """One rank's part. With `threads` this is the only process: all ranks are threads of the programs it starts."""

    def __init__(self, pack: Path, world: World, report: Report, work: Path, threads: bool):
        self.pack, self.world, self.report, self.work, self.threads = pack, world, report, work, threads
        self.document = json.loads((pack / "pack.json").read_text())
        self.gridloom = Gridloom(pack / "bin" / "gridloom", work)
        self.on_gpu = self.document["target"] != "cpu"
        self.fake = False
        if self.on_gpu:
            try:
                self.fake = Gpu().fake
            except NoGpu as error:
                raise Problem(f"no GPU: {error}") from None
        self.begin = time.time()
        self.places: list[Place] = []

    def meet(self, limit: float = 60.0) -> None:
        """Exchanges the ranks' places. Raises Problem with the ranks that do not arrive."""
        mine = Place(socket.gethostname(), self.world.local_rank)
        leave(self.work / f"place-{self.world.rank}.json", dataclasses.asdict(mine))
        if self.threads:
            self.places = [Place(mine.machine, rank) for rank in range(self.world.size)]
            return
        found: dict[int, Place] = {}
        while len(found) < self.world.size:
            missing = [rank for rank in range(self.world.size) if rank not in found]
            if time.time() > self.begin + limit:
                where = (
                    f"{self.work}; give --work, a folder that all machines share"
                    if self.world.machines > 1
                    else self.work
                )
                raise Problem(f"ranks {missing} did not reach {where}")
            for rank in missing:
                if answer := self.read(f"place-{rank}"):
                    found[rank] = Place(**answer)
            time.sleep(0.01)
        self.places = [found[rank] for rank in range(self.world.size)]

    def read(self, name: str) -> dict | None:
        """The document that a rank left, or None. Files that an earlier job of the same name left are ignored."""
        path = self.work / f"{name}.json"
        if path.exists() and path.stat().st_mtime > self.begin - 60:
            return json.loads(path.read_text())
        return None

    # Steps.

    def steps(self) -> list[Step]:
        return [*self.collectives(), *self.strategies(), *self.overlap(), self.kill()]

    def meshes(self) -> list[dict[str, int]]:
        found = []
        for plan in self.document["plans"]:
            if plan["mesh"] and plan["mesh"] not in found:
                found.append(plan["mesh"])
        return found

    def collectives(self) -> list[Step]:
        steps, seen = [], set()
        transport = ["--transport", "nccl"] if self.on_gpu else []
        sizes = ["-e", "16K", "--iters", 1] if self.fake else ["-e", "4M", "--iters", 10]
        for mesh in self.meshes():
            for axis, size in mesh.items():
                groups = axis_groups(mesh, axis)
                if size < 2 or str(groups) in seen:
                    continue
                seen.add(str(groups))
                for kind in COLLECTIVES:
                    command = ["bench", kind, "-b", "1K", "-f", 16, *sizes, *transport]
                    name = f"{kind} over {axis} of {dims_text(mesh)}"
                    steps.append(
                        Step(
                            f"c{len(steps)}",
                            "collectives (busbw as in nccl-tests)",
                            name,
                            groups,
                            command,
                            self.measured(judge_bandwidth),
                        )
                    )
        return steps

    def measured(self, judge):
        """`judge`; on fake GPUs it only checks that the step ran, since their times mean nothing."""

        def ran(results: dict[int, Result]) -> tuple[str, str, dict]:
            judge(results)
            return PASS, "fake GPUs: ran; their times mean nothing", {}

        return ran if self.fake else judge

    def strategies(self) -> list[Step]:
        steps = []
        for plan in self.document["plans"]:
            model, folder = self.document["models"][plan["model"]], self.work / f"out-{len(steps)}"
            reference = Reference(self.pack / model["reference"])
            alone = self.work / f"alone-{plan['model']}"
            mesh = dims_text(plan["mesh"]) or "one rank"
            groups = [list(range(self.world.size))] if plan["mesh"] else [[0]]
            command = ["run", self.pack / plan["path"], "--output", folder if plan["mesh"] else alone]
            for number, (name, array) in enumerate(reference.inputs.items()):
                path = self.work / f"{plan['model']}-{number}.npy"
                if self.world.rank == 0 and not path.exists():
                    np.save(path, array)
                command += ["--input", f"{name}={path}"]

            def judge(results, plan=plan, folder=folder, alone=alone, reference=reference) -> str:
                if "refused" in plan:
                    raise Missing(f"not compiled: {plan['refused']}")
                expect_success(results)
                if not plan["mesh"]:
                    worst = reference.compare(load(alone), TOLERANCES["f32"])
                    return f"{worst:.1e} of the largest value from ONNX Runtime's"
                worst = 0.0
                got = load(folder)
                for name, want in load(alone).items():
                    worst = max(
                        worst, compare(name, got[name], want, TOLERANCES["f32"], float(np.abs(want).max(initial=0)))
                    )
                return f"{worst:.1e} of the largest value from one rank's"

            if "refused" in plan:
                groups = []
            steps.append(
                Step(
                    f"s{len(steps)}", "strategies against one rank", f"{plan['model']}, {mesh}", groups, command, judge
                )
            )
        return steps

    def overlap(self) -> list[Step]:
        steps = []
        for plan in self.document["plans"]:
            if not plan["mesh"] or "refused" in plan:
                continue
            times = ["--iters", 1, "--warmup", 0] if self.fake else ["--iters", 10]
            command = ["bench", self.pack / plan["path"], *times, "--format", "json"]
            name = f"{plan['model']}, {dims_text(plan['mesh'])}"
            steps.append(
                Step(
                    f"o{len(steps)}",
                    "overlap",
                    name,
                    [list(range(self.world.size))],
                    command,
                    self.measured(judge_overlap),
                )
            )
        return steps

    def kill(self) -> Step:
        # Ranks that do not communicate would never notice the death.
        talking = [p for p in self.document["plans"] if p["mesh"] and "refused" not in p and set(p["mesh"]) != {"data"}]
        plan = talking[0]
        everyone = list(range(self.world.size))
        command = ["bench", self.pack / plan["path"], "--iters", 1 << 20, "--timeout", 60]
        victim = self.world.size - 1
        name = f"rank {victim} of {plan['model']}, {dims_text(plan['mesh'])}, is killed"

        def judge(results: dict[int, Result]) -> tuple[str, str, dict]:
            if self.threads:
                raise Missing("ranks are threads here; one cannot be killed alone")
            killed = results[victim].killed_at
            if not killed:
                raise Problem(f"rank {victim} ended by itself: {results[victim].last_line()}")
            took = {rank: r.end - killed for rank, r in results.items() if rank != victim}
            running = [rank for rank in took if results[rank].code == 0]
            if running:
                raise Problem(f"ranks {running} ended as if nothing had happened")
            slowest = max(took.values())
            # Only one rank reports it, so that a large job does not repeat it.
            telling = [rank for rank in took if f"rank {victim}" in results[rank].err]
            if not telling:
                raise Problem(f"no other rank names rank {victim}; rank {min(took)}: {results[min(took)].last_line()}")
            if slowest > LIVENESS + SLACK:
                raise Problem(f"it took {slowest:.1f} s; allowed {LIVENESS + SLACK:.0f} s")
            text = (
                f"all others ended after {slowest:.2f} s at most; rank {telling[0]}: {results[telling[0]].last_line()}"
            )
            return PASS, text, {"seconds": slowest, "ranks_that_name_it": telling}

        return Step("k", "a death", name, [everyone], command, judge, limit=60, victim=victim)

    # Running.

    def run(self) -> None:
        for number, step in enumerate(self.steps()):
            self.port = 29600 + number * 16 % 2000  # a port that was just used may still be occupied
            if self.world.rank == 0:
                self.report.check(
                    step.section, step.name, step.limit + 10, lambda step=step: step.judge(self.gather(step))
                )
            else:
                self.take_part(step)

    def take_part(self, step: Step) -> Result | None:
        """Runs this rank's process of `step`, if it has one, and leaves the result for rank 0."""
        rank = self.world.rank
        group = next((g for g in step.groups if rank in g), None)
        if group is None:
            return None
        number = step.groups.index(group)
        env = environment(self.places, group, rank, f"{self.world.job}-{step.key}-{number}", self.port + number % 16)
        result = self.start(step, env, [])
        leave(self.work / f"{step.key}-{rank}.json", dataclasses.asdict(result))
        return result

    def gather(self, step: Step) -> dict[int, Result]:
        """The results of all ranks of `step`."""
        if self.threads:
            if step.victim is not None or not step.groups:
                return {}
            # Further groups would run the same command again.
            size = len(step.groups[0])
            return {0: self.start(step, {**os.environ}, ["-n", size, "--in-process"] if size > 1 else [])}
        mine = self.take_part(step)
        members = sorted(rank for group in step.groups for rank in group)
        results = {self.world.rank: mine} if mine else {}
        while missing := [rank for rank in members if rank not in results]:
            for rank in missing:
                if answer := self.read(f"{step.key}-{rank}"):
                    results[rank] = Result(**answer)
            time.sleep(0.01)
        return results

    def start(self, step: Step, env: dict[str, str], more: list) -> Result:
        command = [str(word) for word in [self.gridloom.program, *step.command, *more]]
        process = subprocess.Popen(
            command, env={**env, **self.gridloom.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        killed_at, limit = 0.0, step.limit
        try:
            if step.victim == self.world.rank and not self.threads:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=VICTIM_LIVES)
                    return Result(process.returncode, out, err, time.time())
                killed_at = time.time()
                process.kill()
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nnot done after {limit:.0f} s"
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Result(process.returncode, out, err, time.time(), killed_at)


def leave(path: Path, document: dict) -> None:
    """Writes a file atomically, so that others never read a part."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)  # left by a killed job; of a link only the link is removed
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(json.dumps(document))
    part.rename(path)


def load(folder: Path) -> dict[str, np.ndarray]:
    found = {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))} if folder.exists() else {}
    if not found:
        raise Problem("there are no outputs to compare")
    return found


def expect_success(results: dict[int, Result]) -> None:
    failed = {rank: r for rank, r in results.items() if r.code}
    if failed:
        # The longest error names the cause; the other ranks' errors follow from it.
        rank = max(failed, key=lambda rank: len(failed[rank].err))
        raise Problem(f"rank {rank}: {failed[rank].last_line()}")
    for result in results.values():
        findings = [line for line in result.err.splitlines() if line.startswith("fake GPU")]
        if findings:
            raise Problem(findings[0])


def judge_bandwidth(results: dict[int, Result]) -> tuple[str, str, dict]:
    """Reads the tables that the first ranks of all groups printed: size, count, type, redop, time, algbw, busbw, #wrong."""
    expect_success(results)
    rows: dict[int, list[dict]] = {}
    for result in results.values():
        for line in result.out.splitlines():
            cells = line.split()
            if cells and re.fullmatch(r"\d+", cells[0]):
                row = {
                    "bytes": int(cells[0]),
                    "us": float(cells[4]),
                    "algbw": float(cells[5]),
                    "busbw": float(cells[6]),
                }
                rows.setdefault(row["bytes"], []).append({**row, "wrong": cells[7]})
    if not rows:
        raise Problem("no rank printed a table")
    slowest = [min(rows[size], key=lambda row: row["busbw"]) for size in sorted(rows)]
    text = ", ".join(f"{size_text(r['bytes'])} {r['us']:.0f} us {r['busbw']:.2f} GB/s" for r in slowest)
    return MEASURED, text, {"rows": slowest, "groups": max(map(len, rows.values()))}


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def judge_overlap(results: dict[int, Result]) -> tuple[str, str, dict]:
    expect_success(results)
    figures = json.loads(next(r.out for r in results.values() if r.out.strip()))
    text = f"median {figures['median_ms']:.2f} ms, compute {figures['compute_ms']:.2f}"
    if "communication_ms" in figures:
        text += (
            f", communication {figures['communication_ms']:.2f}, {figures['hidden_percent']:.0f}% of the shorter hidden"
        )
    else:
        text += ", no collective"
    if "bubble_percent" in figures:
        text += f", bubble {figures['bubble_percent']:.0f}%"
    return MEASURED, text, figures


def work_folder(job: str, given: Path | None) -> Path:
    """A folder that the ranks of this machine share. Its name can be guessed, so a folder that another user made or may write to is
    refused."""
    if given:
        given.mkdir(parents=True, exist_ok=True)
        return given
    folder = Path(tempfile.gettempdir(), f"gridloom-cluster-check-{os.getuid()}-{job}")
    folder.mkdir(exist_ok=True, mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Problem(f"{folder} is not a folder of this user's alone; remove it, or give another with --work")
    return folder


def clean(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
