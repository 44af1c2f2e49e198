"""The NVIDIA software of a machine, as its libraries report it."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# Library: the variable that names a file to use instead, the file names, and the function that returns the version.
LIBRARIES = {
    "cuBLASLt": ("GRIDLOOM_CUBLASLT", ("libcublasLt.so.13", "libcublasLt.so.12"), "cublasLtGetVersion"),
    "cuDNN": ("GRIDLOOM_CUDNN", ("libcudnn.so.9",), "cudnnGetVersion"),
    "NCCL": ("GRIDLOOM_NCCL", ("libnccl.so.2",), "ncclGetVersion"),
}


def _folders() -> list[Path]:
    """Folders of these libraries outside the loader's search path: Python packages and toolkits."""
    found = []
    for entry in sys.path:
        found += sorted(Path(entry or ".", "nvidia").glob("*/lib"))
    return [*found, *sorted(Path("/usr/local").glob("cuda*/lib64"))]


def _version(library: ctypes.CDLL, function: str) -> str:
    try:
        ask = getattr(library, function)
    except AttributeError:
        return "of unknown version"
    if function == "ncclGetVersion":
        value = ctypes.c_int()
        ask(ctypes.byref(value))
        number = value.value
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    ask.restype = ctypes.c_size_t
    number = ask()
    if function == "cublasLtGetVersion":
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number >= 10000 else str(number)


def find_libraries() -> tuple[dict[str, str], list[str]]:
    """Maps each library to its version and path, or to "not found"; also returns the folders to add to a program's library path."""
    versions, folders = {}, []
    for name, (variable, files, function) in LIBRARIES.items():
        candidates = [os.environ[variable]] if os.environ.get(variable) else list(files)
        if not os.environ.get(variable):
            candidates += [str(folder / file) for folder in _folders() for file in files if (folder / file).exists()]
        versions[name] = "not found"
        for candidate in candidates:
            try:
                library = ctypes.CDLL(candidate)
            except OSError:
                continue
            versions[name] = f"{_version(library, function)} ({candidate})"
            if "/" in candidate and not os.environ.get(variable):
                folders.append(os.path.dirname(candidate))
            break
    return versions, folders


class NoGpu(Exception):
    """There is no usable GPU; the message says why in one line."""


class Gpu:
    """GPU `ordinal` as the driver describes it. Raises NoGpu if there is none."""

    def __init__(self, ordinal: int = 0):
        path = os.environ.get("GRIDLOOM_CUDA_DRIVER") or "libcuda.so.1"
        try:
            cuda = ctypes.CDLL(path)
        except OSError as error:
            raise NoGpu(f"the NVIDIA driver is not installed on this machine, or does not load: {error}") from None
        self._cuda = cuda
        self._call("cuInit", 0)
        count, device = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if count.value <= ordinal:
            raise NoGpu(f"the driver shows {count.value} GPUs")
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, device)
        self.name, self.count = name.value.decode(), count.value
        self.chip = f"sm_{self._attribute(75, device)}{self._attribute(76, device)}"
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        self.memory = None
        if hasattr(cuda, "cuDeviceTotalMem_v2"):
            total = ctypes.c_size_t()
            self._call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
            self.memory = total.value

    @property
    def fake(self) -> bool:
        """Whether this is the interpreter for tests, whose times mean nothing."""
        return self.name == "Fake GPU"

    def _call(self, function: str, *arguments) -> None:
        if code := getattr(self._cuda, function)(*arguments):
            raise NoGpu(f"{function} failed with {code}")

    def _attribute(self, attribute: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value


def driver_version() -> str:
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), "unknown")
