"""Shardings of the zoo's models: every replicated value has a reason, and the reason is true."""

from __future__ import annotations

import json
import re

import onnx
import pytest

from gridloom import zoo

BERT = zoo.BertConfig(layers=2, hidden=48, heads=6, intermediate=96, vocabulary=128, positions=16, head="embedding")
DIMS = ("--dim", "batch=4", "--dim", "sequence=8")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    onnx.save(zoo.bert(BERT, zoo.Random(0)), folder / "bert.onnx")
    onnx.save(zoo.mlp((16, 64, 64, 8), zoo.Random(0)), folder / "mlp.onnx")
    return {"bert": (folder / "bert.onnx", DIMS), "mlp": (folder / "mlp.onnx", ("--dim", "batch=8"))}


REASONS = [
    r"it is one element$",
    r"it is empty$",
    r"its largest dimension has \d+ elements, fewer than the \d+ devices of '.+'$",
    r"the mesh has axis '.+' alone, for stages$",
    r"asked for by .+$",
    r"its dimension \d+ of \d+ is smaller than the \d+ devices of '.+' that split '.+'$",
    r"it cannot be cut as '.+' splits '.+'$",
    r"the split over '.+' that '.+' asks for gives way at '.+'$",
    r"it is the sum of partial values of the devices of '.+' at '.+'$",
    r"'.+' needs all of its dimension [\d, ]+$",
    r"'.+' splits dimensions of '.+' that this value does not have$",
    r"'.+' gathers its operands$",
    r"like '.+', computed from or with it: .+$",
    r"split by columns over '.+', (its product would have to be gathered for '.+'|a result of the model would be split|.+)$",
    r"nothing asks for a split$",
]


def shape_of(value):
    return [int(n) for n in re.findall(r"(\d+)x", value["type"])]


def get_reason(value):
    """The reason why a value is replicated; None if an axis other than micro splits it."""
    axes = re.findall(r'"(\w+)"', value["sharding"])
    if [axis for axis in axes if axis != "micro"]:
        assert "replicated" not in value["origin"], value
        return None
    match = re.match(r"(?:micro: [^;]*; )?replicated: (.*)", value["origin"])
    assert match, f"{value['name']} is whole without a reason: {value['origin']!r}"
    return match.group(1)


@pytest.mark.parametrize("mesh", ["data=4", "model=4", "model=5", "data=2,model=2", "data=2,pipe=2", "model=2,pipe=2", "pipe=2"])
@pytest.mark.parametrize("name", ["bert", "mlp"])
def test_every_whole_value_has_a_reason(tools, models, tmp_path, name, mesh):
    path, dims = models[name]
    tools.compile(path, tmp_path / "m.plan", *dims, "--mesh", mesh)
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    least = min([int(a.split("=")[1]) for a in mesh.split(",") if "pipe" not in a], default=None)
    whole = split = 0
    for value in report["values"]:
        reason = get_reason(value)
        if reason is None:
            split += 1
            continue
        whole += 1
        assert any(re.match(pattern, reason) for pattern in REASONS), reason
        elements = 1
        for size in shape_of(value):
            elements *= size
        if least is None:
            assert reason == "the mesh has axis 'pipe' alone, for stages"
            continue
        # Reasons that the report alone can confirm.
        assert (reason == "it is one element") == (elements == 1)
        assert reason.startswith("its largest dimension") == (elements > 1 and max(shape_of(value)) < least)
        # A named node must be one of the model's.
        if match := re.search(r" at '([^']+)'$", reason):
            assert any(match.group(1) in v["name"] for v in report["values"]), reason
    assert (split > 0) == (least is not None)
    # Each kind of reason is one remark.
    printed = sum("replicated: " in remark for remark in report["remarks"])
    assert 0 < printed <= 20 or whole == 0


def test_explain_gives_the_reason(tools, models, tmp_path):
    path, dims = models["bert"]
    tools.compile(path, tmp_path / "m.plan", *dims, "--mesh", "model=2")
    text = tools.call("explain", tmp_path / "m.plan", "--value", "encoder.layer.0.output.dense.bias").stdout
    assert "replicated: like '" in text and "it is the sum of partial values of the devices of 'model' at" in text
    result = tools.compile(path, tmp_path / "n.plan", *dims, "--mesh", "model=2", "--remarks")
    assert "remark: " in result.stderr and "replicated: nothing asks" not in result.stderr


def test_uneven_heads_are_split(tools, models, tmp_path):
    """6 heads over 5 devices: split between heads, so that no device has all of them."""
    path, dims = models["bert"]
    tools.compile(path, tmp_path / "m.plan", *dims, "--mesh", "model=5")
    values = {v["name"]: v for v in json.loads((tmp_path / "m.plan" / "report.json").read_text())["values"]}
    softmax = [v for name, v in values.items() if v["op"] == "loom.softmax"]
    assert softmax and all('"model"' in v["sharding"] for v in softmax)
