"""The contents of the packs of gpu-check and cluster-check."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import models
from .pack import LIMIT, ROOT, Packer, archive, folder_bytes

ARCHIVES = (".tar.gz", ".tar.xz")


def find_tools(folder: Path | None) -> Path:
    sys.path.insert(0, str(ROOT / "python"))
    from gridloom._tools import find_tool

    for name in ("gridloom", "gridloom-compile"):
        found = find_tool(name, folder)
    return found.parent


def build(out: Path, program: str, tools: Path, jobs: int, fill, folds: bool = False) -> int:
    """Makes the pack `out`, a folder or an archive. `fill(packer)` adds models and plans and returns further entries of pack.json.
    `folds` also compresses parts of the folder. Returns the exit code: 1 if the folder exceeds its size limit, 2 for an unusable `out`."""
    begin = time.monotonic()
    if out.suffix and not out.name.endswith(ARCHIVES):
        print(f"error: {out} is neither a folder nor one of {', '.join(ARCHIVES)}", file=sys.stderr)
        return 2
    is_archive = out.name.endswith(ARCHIVES)
    if out.exists() and (not is_archive and not (out / "pack.json").exists() and any(out.iterdir())):
        print(f"error: {out} exists and is not a pack", file=sys.stderr)
        return 2
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".packing-") as temporary:
        folder = Path(temporary, out.name.split(".tar")[0])
        packer = Packer(folder, program, tools, jobs)
        more = fill(packer)
        packer.compile()
        packer.add_program()
        packer.finish(**more)
        if folds:
            packer.fold()
        size = folder_bytes(folder)
        if is_archive:
            packed = archive(folder, out)
        else:
            packed = size
            shutil.rmtree(out, ignore_errors=True)
            folder.rename(out)
    refused = sum("refused" in plan for plan in packer.plans)
    print(
        f"{out}: {packed / 2**20:.1f} MiB ({size / 2**20:.1f} MiB unpacked), {len(packer.models)} models, "
        f"{len(packer.plans) - refused} plans ({refused} refused by the compiler), in {time.monotonic() - begin:.0f} s"
    )
    if size > LIMIT:
        print(f"error: {size} bytes are more than {LIMIT}, the limit; choose fewer chips or models", file=sys.stderr)
        return 1
    return 0


def pack_gpu(options: argparse.Namespace) -> int:
    tools = find_tools(options.bin)
    chips = options.chip or list(models.CHIPS)

    def fill(packer: Packer) -> dict:
        from gridloom import zoo

        alone = [*models.TINY, *models.TINY_CEILINGS]
        split, numbers = (models.SPLIT[0],), (2,)
        trained = models.TINY_TRAINED
        if options.models != "tiny":
            alone = [*models.small_models(zoo.SMALL), *models.REAL]
            split, numbers = models.SPLIT, (2, 4, 8)
            trained = models.TRAINED
        if options.models == "all":
            alone += [*models.TRUE, *models.CEILINGS]
        for model in [*alone, *split]:
            packer.add_model(model)
            print(f"  {model.name}", flush=True)
        for model in trained:
            packer.add_model(model)
            packer.add_training(model)
            print(f"  {model.name}", flush=True)
        for chip in chips:
            for model in [*alone, *split, *trained]:
                for precision in model.precisions:
                    packer.add_plan(model, f"cuda:{chip}", precision)
            for model in split:
                for ranks in numbers:
                    for mesh in models.meshes(ranks):
                        packer.add_plan(model, f"cuda:{chip}", "f32", mesh)
            for model in trained:
                packer.add_plan(model, f"cuda:{chip}", "f32", {"data": 2})
        return {"chips": chips}

    return build(options.pack, "gpu-check", tools, options.jobs, fill, folds=True)


def pack_cluster(out: Path, tools: Path | None, jobs: int, ranks: int, target: str, names: list[str]) -> int:
    tools = find_tools(tools)

    def fill(packer: Packer) -> dict:
        for model in [model for model in models.SPLIT if model.name in names]:
            packer.add_model(dataclasses.replace(model, generated=False))
            packer.add_plan(model, target)
            for mesh in models.meshes(ranks):
                packer.add_plan(model, target, "f32", mesh)
        return {"ranks": ranks, "target": target}

    return build(out, "cluster-check", tools, jobs, fill)
