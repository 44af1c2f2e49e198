"""Which rank this process is: what the launchers' variables say, and how to hand them on."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping

# Launcher: rank, size, local rank, local size, and what names the job.
_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
}  # fmt: skip
_FOREIGN = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_")


@dataclasses.dataclass(frozen=True)
class World:
    """A process among `size`; `local_rank` of `local_size` on this machine. `job` is equal for all of them."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    source: str
    job: str


def detect(env: Mapping[str, str] = os.environ) -> World | None:
    """What a launcher says; None without one. Raises ValueError naming variables that are incomplete."""
    for source, (rank, size, local_rank, local_size, job) in _LAUNCHERS.items():
        if rank not in env and size not in env:
            continue
        if source == "Slurm" and "SLURM_STEP_ID" not in env:
            continue  # a batch script is no task
        if rank not in env or size not in env:
            raise ValueError(f"{rank if rank in env else size} is set but {size if rank in env else rank} is not; set both or neither")
        try:
            number, count = int(env[rank]), int(env[size])
            # Slurm writes "2(x3)": two tasks on each of three machines.
            local_count = int(env.get(local_size, str(count)).split("(")[0])
            local = int(env.get(local_rank, str(number)))
        except ValueError:
            raise ValueError(f"{rank}, {size}, {local_rank} and {local_size} must be numbers") from None
        if not 0 <= number < count or not 0 <= local < local_count:
            raise ValueError(f"{rank}={number} must be below {size}={count}, and {local_rank}={local} below {local_count}")
        if count == 1:
            continue
        name = "-".join([source, *(env.get(variable, "") for variable in job)])
        return World(number, count, local, local_count, f"{source} ({rank}, {size})", hashlib.sha256(name.encode()).hexdigest()[:12])
    return None


def environment(members: list[int], rank: int, job: str) -> dict[str, str]:
    """The environment of member `rank` of a job of its own that `members` of this machine form: torchrun's variables,
    and those GPUs only."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    at = str(members.index(rank))
    env.update(RANK=at, WORLD_SIZE=str(len(members)), LOCAL_RANK=at, LOCAL_WORLD_SIZE=str(len(members)))
    env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TORCHELASTIC_RUN_ID=job)
    visible = [gpu for gpu in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if not visible or len(visible) > max(members):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(visible[m] if visible else str(m) for m in members)
    return env
