"""Sessions: a loaded plan that runs on numpy arrays."""

from __future__ import annotations

import dataclasses
import operator
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ._tools import native
from .errors import Error, ErrorCode
from .plan import Plan, numpy_type

# Element types in the C interface's numbering.
_TYPES = ["", "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "bool", "u16", "u32", "u64",
          "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Stats:
    """Times of a run: milliseconds, and shares from 0 to 1. `exposed_ms` is communication that no computation
    hid; `bubble` is the idle share of a pipeline."""

    wall_ms: float
    compute_ms: float
    communication_ms: float
    exposed_ms: float
    overlap: float
    bubble: float


@dataclasses.dataclass(frozen=True)
class State:
    """A named value that a session keeps between calls: a cache, a trained weight, or part of its optimizer state. The shape is global.
    `role` is "parameter", "slot" (of an optimizer) or "run"."""

    dtype: np.dtype
    shape: tuple[int, ...]
    role: str = "run"


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a training run: committed steps, samples read over all epochs, samples of the data (0: unknown), and the seed of
    their order."""

    step: int = 0
    cursor: int = 0
    samples: int = 0
    seed: int = 0


class Session:
    """A plan, loaded on all its ranks. Make one with `gridloom.load`.

    Calls from several threads take turns. A signal handler that interrupts a call may make no other call of the session
    than `abort`. Errors of the runtime are `gridloom.Error`; after one whose code is
    INVALID_ARGUMENT or INVALID_PLAN the session still works. Under a launcher (`ranks="environment"`) a `run` that one
    rank refuses ends the job on all, since the others wait for it. A process forked after `load` cannot use the session."""

    def __init__(
        self, plan, *, ranks: str, threads: int, weights, trace: bool, deadline: float, graphs: bool = True, transport=None,
        autotune: bool = False, check_indices: bool = False, init_seed: int | None = None, require_signature=None,
    ):  # fmt: skip
        if ranks not in ("in-process", "environment"):
            raise ValueError(f"ranks {ranks!r} is not one of in-process, environment")
        weights = None if weights is None else os.fspath(weights)
        if weights == "":
            raise ValueError("weights is empty; name a file, or leave it out")
        threads = _whole("threads", threads, 4096)
        init_seed = None if init_seed is None else _whole("init_seed", init_seed, 2**64 - 1)
        if not 0.001 <= deadline <= 1e6:
            raise ValueError(f"deadline {deadline} is not from 0.001 to 1000000 seconds")
        self._native = native().Session(
            os.fspath(plan), ranks == "environment", threads, weights, trace, int(deadline * 1000), graphs, transport or "",
            autotune, check_indices, init_seed, _list_keys(require_signature),
        )  # fmt: skip
        self._plan = os.fspath(plan)
        self._process = os.getpid()
        self._tells_peers = ranks == "environment"
        self._lock = threading.RLock()
        # A lock of its own: submitting a run must not wait for the run in progress.
        self._submitting = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def ranks(self) -> int:
        """The number of the plan's ranks."""
        return self._open().num_ranks()

    @property
    def stats(self) -> Stats:
        """Figures of the last run."""
        with self._taken():
            return Stats(**self._open().stats())

    def bind(self, name: str, array) -> None:
        """Gives input `name` its whole value: a numpy array, or anything that speaks DLPack from host memory. The
        memory is read by each run until the input is bound again; an array that is not contiguous is copied."""
        if not isinstance(name, str):
            raise TypeError(f"the name of an input is a string, not {name!r}")
        tensor = describe_tensor(f"input '{name}'", array)
        with self._taken():
            self._open().bind(name, *tensor)

    def run(self, inputs: Mapping | None = None, *, entry: str = "main", dims: Mapping[str, int] | None = None):
        """Binds `inputs`, runs `entry` and returns its outputs by name: whole numpy arrays of the caller's own.

        The specialisation is the one `dims` names, else the one that the bound shapes fit. Under a launcher
        (`ranks="environment"`) rank 0 gets the arrays and the others None."""
        with self._taken():
            try:
                if inputs is not None and not isinstance(inputs, Mapping):
                    raise TypeError(f"inputs are a mapping of names to arrays, not {type(inputs).__name__}")
                for name, array in (inputs or {}).items():
                    self.bind(name, array)
                if not isinstance(entry, str):
                    raise TypeError(f"the name of an entry is a string, not {entry!r}")
                sizes = {str(name): _whole(f"dimension {name!r}", size, 2**63 - 1) for name, size in (dims or {}).items()}
            except Exception as error:
                # The other ranks may have bound their inputs, and would wait for this one.
                if self._tells_peers:
                    self.abort(str(error))
                raise
            self._open().run(entry, sizes)
            return {name: value and _array(*value) for name, value in self._open().outputs().items()}

    def run_async(self, inputs: Mapping | None = None, **options) -> Future:
        """Like `run`, on another thread; returns a future of the outputs at once. Runs take place in the order of submission."""
        self._open()
        with self._submitting:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="gridloom")
            return self._executor.submit(self.run, inputs, **options)

    def update_weights(self, path: str | os.PathLike) -> None:
        """Replaces all weights by those of an .onnx or .safetensors file of the same architecture, on every rank, or after an error on
        none. States that begin as weights, such as those that a plan trains, have the new values from the next `reset_states` on."""
        with self._taken():
            self._open().update_weights(os.fspath(path))

    @property
    def plan(self) -> Plan:
        """The plan, read from its folder."""
        return Plan.read(self._plan)

    @property
    def states(self) -> dict[str, State]:
        """The states that the session keeps between calls, by name."""
        with self._taken():
            return {
                name: State(numpy_type(_TYPES[number]), tuple(shape), role)
                for name, number, shape, role in self._open().states()
            }

    def get_state(self, name: str) -> np.ndarray:
        """The whole value of a state, as an array of the caller's own."""
        with self._taken():
            value = self._open().get_state(name)
            return value and _array(*value)

    def set_state(self, name: str, array) -> None:
        """Sets the whole value of a state, on every rank its part: a numpy array or an array that supports DLPack, with the state's
        element type and shape."""
        tensor = describe_tensor(f"state '{name}'", array)
        with self._taken():
            self._open().set_state(name, *tensor)

    def save(self, path: str | os.PathLike, progress: Progress | None = None) -> None:
        """Writes all states as a checkpoint, a folder at `path`, as `gridloom train` does; an existing checkpoint there is replaced once
        the new one is complete. Raises Error, and changes nothing, if anything else is there, or if the path is in the plan."""
        with self._taken():
            self._open().save(os.fspath(path), *dataclasses.astuple(progress or Progress()))

    def restore(self, path: str | os.PathLike) -> Progress:
        """Sets all states from a checkpoint, or from the latest in a run's folder; it may come from any mesh. Raises Error, and changes
        nothing, if the checkpoint is damaged or belongs to another model or optimizer."""
        with self._taken():
            return Progress(*self._open().restore(os.fspath(path)))

    def reset_states(self) -> None:
        """Resets the states that the session keeps between calls (caches; see `compile`'s `state`) to those of a new session."""
        with self._taken():
            self._open().reset_states()

    def write_trace(self, path: str | os.PathLike) -> None:
        """Writes the last run for Perfetto; the session must have been loaded with `trace=True`. A trace at `path` is replaced; another
        file is refused."""
        with self._taken():
            self._open().write_trace(os.fspath(path))

    def abort(self, reason: str) -> None:
        """Ends the job on all ranks, which then fail with `reason`: for a rank that will not make the calls that the
        others wait for. Any thread may call it, also while another's run is in progress."""
        self._open().abort(reason)

    def close(self) -> None:
        """Waits for runs in progress and frees everything. Closing twice is fine. In a forked process it does nothing."""
        if self._process != os.getpid():
            return
        if self._executor:
            self._executor.shutdown()
        with self._lock:
            self._native = self._executor = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _open(self):
        if self._native is None:
            raise ValueError("the session is closed")
        if self._process != os.getpid():
            message = (
                f"the session was made in process {self._process} and cannot be used in process {os.getpid()}, forked "
                "from it; make one there, or start the process with spawn"
            )
            raise Error(message, ErrorCode.INVALID_ARGUMENT)
        return self._native

    def _taken(self):
        """The lock of an open session. Raises Error in a forked process, where no thread may be left to release it."""
        self._open()
        return self._lock


def _whole(name: str, value, most: int) -> int:
    """`value`, if it is an integer from 0 to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise ValueError(f"{name} is {value!r}, expected an integer from 0 to {most}")
    return number


def to_numpy(array) -> np.ndarray:
    """`array` as a numpy array: itself, shared by DLPack, or converted by numpy."""
    if isinstance(array, np.ndarray):
        return array
    return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)


def describe_tensor(what: str, array) -> tuple[int, list[int], np.ndarray]:
    """Type number, shape and bytes of an array; one that is not contiguous is copied."""
    array = to_numpy(array)
    type_number = _type_number(what, array.dtype)
    return type_number, list(array.shape), np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _type_number(what: str, dtype: np.dtype) -> int:
    for number, spelled in enumerate(_TYPES):
        if spelled and dtype == numpy_type(spelled):
            return number
    message = f"{what} has element type {dtype}; the runtime has {', '.join(_TYPES[1:])}"
    raise Error(message, ErrorCode.INVALID_ARGUMENT)


def _list_keys(keys) -> list[str]:
    """The files of public keys, of which None requires none. An empty list would require none, too, which nobody can mean."""
    if keys is None:
        return []
    paths = [os.fspath(keys)] if isinstance(keys, (str, os.PathLike)) else [os.fspath(key) for key in keys]
    if not paths:
        raise ValueError("require_signature is empty; name the file of a public key, or leave it out")
    return paths


def _array(type_number: int, shape: list[int], data: np.ndarray) -> np.ndarray:
    return data.view(numpy_type(_TYPES[type_number])).reshape(shape)


def load(
    plan: str | os.PathLike,
    *,
    ranks: str = "in-process",
    threads: int = 0,
    weights: str | os.PathLike | None = None,
    trace: bool = False,
    deadline: float = 300.0,
    graphs: bool = True,
    transport: str | None = None,
    autotune: bool = False,
    check_indices: bool = False,
    init_seed: int | None = None,
    require_signature: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
) -> Session:
    """Loads a plan (a folder, or the result of `gridloom.compile`) and returns a session.

    All ranks run in this process, a thread each, unless `ranks` is "environment": then this process is one rank of a job that `gridloom
    run`, torchrun, mpirun or srun started. `threads` are per rank, 0 for cores divided by ranks; `weights` is a file or a checkpoint's
    folder to use instead of the model's weights; `deadline` is how many seconds a rank may go without progress; without `graphs`, steps on
    GPUs are submitted one by one. `transport` is "local", "nccl" or "loopback" (all ranks of a plan for GPUs on one GPU, to check it), by
    default the one that the plan's target needs. With `autotune` the session measures which of cuBLASLt's and cuDNN's algorithms are
    fastest on this GPU and stores them in the plan's folder for later sessions. With `check_indices` a run whose inputs have indices out of
    range raises ONNX's error; otherwise such an index is clamped, or gives zeros if the table is split. `init_seed` replaces the seed of
    the weights that a plan draws (`gridloom.compile(..., init=...)`), an integer from 0 to 2**64 - 1; a plan that draws none is refused.
    With `require_signature`, the file of a public key or several, a plan is refused unless it is as `gridloom sign` signed it with one of
    these keys; all bytes of the model's files are checked, and measurements of `autotune` are not used.

    A plan contains native code: loading it is running a program."""
    options = {"weights": weights, "trace": trace, "deadline": deadline, "graphs": graphs, "transport": transport}
    options |= {"autotune": autotune, "check_indices": check_indices, "init_seed": init_seed, "require_signature": require_signature}
    return Session(plan, ranks=ranks, threads=threads, **options)
