"""Rank and size of this process, from the launchers' variables, and how to pass them on."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping

# Launcher: the variables of rank, size, local rank, local size, and the job.
_LAUNCHERS = {
    "torchrun": (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    ),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    "Slurm": (
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    # And launchers derived from it: Intel MPI, HPE PALS.
    "MPICH": (
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        ("PMI_JOBID", "I_MPI_HYDRA_UUID", "PALS_APID"),
    ),
}
_FOREIGN = ("OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "SLURM_", "TORCHELASTIC_")


@dataclasses.dataclass(frozen=True)
class World:
    """A process among `size`, with `local_rank` among the `local_size` on this machine. All have the same `job`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    source: str
    job: str

    @property
    def machines(self) -> int:
        return -(-self.size // self.local_size)


def detect(env: Mapping[str, str] = os.environ) -> World | None:
    """Rank and size from a launcher's variables, or None without a launcher. Raises ValueError naming the incomplete variables."""
    for source, (rank, size, local_rank, local_size, job) in _LAUNCHERS.items():
        if rank not in env and size not in env:
            continue
        if source == "Slurm" and "SLURM_STEP_ID" not in env:
            continue  # a batch script is no task
        if rank not in env or size not in env:
            raise ValueError(
                f"{rank if rank in env else size} is set but {size if rank in env else rank} is not; set both or neither"
            )
        try:
            number, count = int(env[rank]), int(env[size])
            # Slurm writes "2(x3)" for two tasks on each of three machines.
            local_count = int(env.get(local_size, str(count)).split("(")[0])
            local = int(env.get(local_rank, str(number)))
        except ValueError:
            raise ValueError(f"{rank}, {size}, {local_rank} and {local_size} must be numbers") from None
        if not 0 <= number < count or not 0 <= local < local_count:
            raise ValueError(
                f"{rank}={number} must be below {size}={count}, and {local_rank}={local} below {local_count}"
            )
        if count == 1:
            continue
        name = "-".join([source, *(env.get(variable, "") for variable in job)])
        return World(
            number,
            count,
            local,
            local_count,
            f"{source} ({rank}, {size})",
            hashlib.sha256(name.encode()).hexdigest()[:12],
        )
    return None


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a rank: its machine, and its number among the machine's ranks."""

    machine: str
    local_rank: int


def environment(places: list[Place], members: list[int], rank: int, job: str, port: int) -> dict[str, str]:
    """The environment of `rank` in a job of its own that `members` form: torchrun's variables, and the members' GPUs of this machine.
    Members on several machines meet at `port`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    here = [member for member in members if places[member].machine == places[rank].machine]
    env.update(RANK=str(members.index(rank)), WORLD_SIZE=str(len(members)))
    env.update(LOCAL_RANK=str(here.index(rank)), LOCAL_WORLD_SIZE=str(len(here)))
    env.update(MASTER_ADDR=places[members[0]].machine, MASTER_PORT=str(port), TORCHELASTIC_RUN_ID=job)
    gpus = [places[member].local_rank for member in here]
    visible = [gpu for gpu in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if not visible or len(visible) > max(gpus):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(visible[gpu] if visible else str(gpu) for gpu in gpus)
    return env
