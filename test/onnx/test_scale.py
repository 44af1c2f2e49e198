"""Large models compile fast, in memory proportional to their graphs. Weights are holes in sparse files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import evaluate

sys.path.insert(0, str(evaluate.ROOT / "python"))

from gridloom import zoo  # noqa: E402
from gridloom.zoo.graph import ExternalFile  # noqa: E402

INSPECT = os.environ.get("GRIDLOOM", str(evaluate.ROOT / "build/dev/bin/gridloom"))
COMPILER = os.environ.get("GRIDLOOM_COMPILE", str(evaluate.ROOT / "build/dev/bin/gridloom-compile"))


class Zeros:
    """Weights that occupy no memory."""

    def get(self, name, shape, **_):
        return np.broadcast_to(np.float32(0), shape)


class SparseFile(ExternalFile):
    """Reserves ranges without writing to them."""

    def add(self, name, array):
        with self.path.open("r+b") as file:
            offset = -(-file.seek(0, 2) // self.ALIGNMENT) * self.ALIGNMENT
            file.truncate(offset + array.nbytes)
        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in [("location", self.path.name), ("offset", offset), ("length", array.nbytes)]:
            tensor.external_data.add(key=key, value=str(value))
        return tensor


def bert(folder, **options):
    path = folder / "model.onnx"
    config = zoo.BertConfig(**{**dict(vocabulary=30522, positions=512), **options})
    path.write_bytes(zoo.bert(config, Zeros(), store=SparseFile(path)).SerializeToString())
    return path


def compile_model(path, mesh=""):
    """Returns processor seconds, peak resident bytes, and the symbols of the plan's kernels."""
    plan = path.with_suffix(".plan")
    command = [COMPILER, "compile", str(path), "-o", str(plan), "--dim", "batch=8", "--dim", "sequence=128"]
    child = subprocess.Popen(command + (["--mesh", mesh] if mesh else []), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = child.stdout.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, output
    view = subprocess.run([INSPECT, "inspect", str(plan), "kernels", "--format", "json"], check=True, capture_output=True)
    kernels = sorted(kernel["symbol"] for kernel in json.loads(view.stdout)["kernels"])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, kernels


@pytest.mark.parametrize("mesh", ["", "data=2,model=2"])
def test_layers_share_kernels(tmp_path, mesh):
    small = dict(hidden=128, heads=4, intermediate=512)
    (tmp_path / "12").mkdir()
    (tmp_path / "96").mkdir()
    _, _, few = compile_model(bert(tmp_path / "12", layers=12, **small), mesh)
    seconds, _, many = compile_model(bert(tmp_path / "96", layers=96, **small), mesh)
    assert many == few
    assert seconds < 15


def test_bert_base(tmp_path):
    seconds, _, _ = compile_model(bert(tmp_path, layers=12, hidden=768, heads=12, intermediate=3072), "data=2,model=2")
    assert seconds < 10


def test_thirty_gigabytes(tmp_path):
    path = bert(tmp_path, layers=10, hidden=8192, heads=64, intermediate=32768)
    assert (tmp_path / "model.onnx.data").stat().st_size > 30e9
    seconds, resident, _ = compile_model(path, "data=2,model=2")
    assert resident < 2e9 and seconds < 10
