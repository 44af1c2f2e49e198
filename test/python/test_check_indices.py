"""Out-of-range indices: refused with --check-indices, as ONNX Runtime refuses them."""

from __future__ import annotations

import gridloom
import numpy as np
import pytest

from gridloom import zoo

SIZES = {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 29, "positions": 16, "cache": "static"}


@pytest.fixture(scope="module")
def plans(tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("indices")
    model = zoo.save(zoo.gpt2(zoo.Gpt2Config(**SIZES), zoo.Random(1)), folder / "m.onnx")
    dims = ["--dim", "batch=1", "--dim", "sequence=4", "--state", "past_*=present_*"]
    for name, mesh in (("one", []), ("two", ["--mesh", "model=2"]), ("pipe", ["--mesh", "pipe=2"])):
        tools.compile(model, folder / f"{name}.plan", *dims, *mesh)
    return folder


@pytest.mark.parametrize("mesh", ["one", "two", "pipe"])
@pytest.mark.parametrize(
    ("ids", "position", "error"),
    [
        ("28", "12", None),
        ("-29", "12", None),
        ("29", "0", "node '/Gather_1': input 'input_ids' holds the index 29, outside of a dimension of 29"),
        ("-30", "0", "holds the index -30, outside of a dimension of 29"),
        ("0", "13", "input 'position' holds the index 13, from which it counts to 16, outside of a dimension of 16"),
    ],
)
def test_a_run_refuses_them(tools, plans, mesh, ids, position, error):
    run = ["run", plans / f"{mesh}.plan", "--input", f"input_ids={ids}", "--input", f"position={position}"]
    assert tools.call(*run, check=False).returncode == 0
    result = tools.call(*run, "--check-indices", check=False)
    assert (result.returncode == 0) == (error is None)
    if error:
        assert error in result.stderr, result.stderr


def test_a_session_refuses_them_and_goes_on(plans):
    with gridloom.load(plans / "two.plan", check_indices=True) as session:
        inputs = {"input_ids": np.array([[1, 2, 3, 29]]), "position": np.array([0])}
        with pytest.raises(gridloom.Error, match="holds the index 29, outside of a dimension of 29"):
            session.run(inputs)
        assert np.isfinite(session.run({**inputs, "input_ids": np.array([[1, 2, 3, 28]])})["logits"]).all()


def test_sizes_beyond_the_table_warn(tools, plans, tmp_path):
    options = ["--dim", "batch=1", "--dim", "sequence=20", "--stop-after", "import", "--dump-ir", tmp_path]
    warned = tools.compile(plans / "m.onnx", tmp_path / "m.plan", *options).stderr
    assert "the table has 16 rows, fewer than the 20 positions that are counted from 0" in warned


def test_what_no_lookup_reads_may_be_anything(tools, tmp_path):
    """A column that no lookup reads, and columns with an offset each."""
    from onnx import TensorProto, helper, numpy_helper

    arrays = {
        "offsets": np.array([100, 0]),
        "all": np.zeros((110, 4), np.float32),
        "few": np.zeros((5, 4), np.float32),
        **{name: np.array([value]) for name, value in (("begin", 0), ("end", 1), ("axis", 1))},
    }
    nodes = [
        helper.make_node("Add", ["ids", "offsets"], ["places"]),
        helper.make_node("Gather", ["all", "places"], ["y"]),
        helper.make_node("Slice", ["ids", "begin", "end", "axis"], ["first"]),
        helper.make_node("Gather", ["few", "first"], ["z"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 2])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = zoo.save(helper.make_model(helper.make_graph(nodes, "g", [ids], outputs, constants)), tmp_path / "m.onnx")
    tools.compile(model, tmp_path / "m.plan")
    np.save(tmp_path / "ids.npy", np.array([[0, 99], [4, 50]]))
    tools.call("run", tmp_path / "m.plan", "--input", f"ids={tmp_path}/ids.npy", "--check-indices")
