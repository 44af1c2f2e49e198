"""`gridloom inspect PLAN --format html`: the page in a browser, its numbers, what is refused, and hostile names.

The browser is Debian's Chromium. A check is a script appended to a copy of the page; its result is read from the document that the
browser prints. Screenshots are kept in build/test-results/page.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import time

import numpy as np
import onnx
import pytest
from conftest import ROOT
from onnx import TensorProto, helper
from PIL import Image

from gridloom import zoo

SHOTS = ROOT / "build" / "test-results" / "page"
DEEP = {"layers": 96, "hidden": 32, "heads": 4, "vocabulary": 100, "positions": 32}


class Browser:
    def __init__(self, program: str, folder):
        self.program, self.folder, self.runs = program, folder, 0

    def start(self, page, *options) -> subprocess.CompletedProcess:
        self.runs += 1
        command = [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        command += ["--enable-logging=stderr", f"--user-data-dir={self.folder}/profile{self.runs}", *options, page.as_uri()]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        lines = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        assert not lines, lines
        return result

    def evaluate(self, page, script: str, *options):
        """The result of `script`, the body of a function, run once the page is ready."""
        assert page.read_text().count("</body>") == 1
        probe = f"""<script>addEventListener('load', () => {{
            const found = (() => {{ {script} }})();
            const text = document.createElement('pre');
            text.id = 'found';
            text.textContent = JSON.stringify(found === undefined ? null : found);
            document.body.append(text);
        }});</script></body>"""
        copy = self.folder / f"probe{self.runs}.html"
        copy.write_text(page.read_text().replace("</body>", probe))
        text = self.start(copy, "--window-size=1360,2000", "--dump-dom", *options).stdout
        (found,) = re.findall(r'<pre id="found">(.*?)</pre>', text, re.DOTALL)
        return json.loads(html.unescape(found))

    def shoot(self, page, name: str, height: int) -> dict[str, np.ndarray]:
        """Screenshots by colour scheme."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        pictures = {}
        for scheme, number in (("light", 1), ("dark", 0)):
            path = SHOTS / f"{name}-{scheme}.png"
            path.unlink(missing_ok=True)
            self.start(page, f"--window-size=1360,{height}", f"--blink-settings=preferredColorScheme={number}", f"--screenshot={path}")
            pictures[scheme] = np.asarray(Image.open(path).convert("RGB"))
        return pictures


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = shutil.which("chromium")
    if not program:
        pytest.skip("there is no chromium: apt-get install chromium")
    return Browser(program, tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def plans(tools, tmp_path_factory):
    """The five plans that the screenshots show."""
    folder, made = tmp_path_factory.mktemp("plans"), {}
    gpt2 = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 200, "positions": 32}
    llama = {**gpt2, "layers": 4, "kv_heads": 4, "intermediate": 128, "head": "logits"}
    text = ["--dim", "batch=8", "--dim", "sequence=16"]
    kinds = {
        "data": ("gpt2", gpt2, [*text, "--mesh", "data=4"]),
        "tensor": ("gpt2", gpt2, [*text, "--mesh", "data=2,model=2", "--strategy", "dp+tp"]),
        "pipeline": ("llama", llama, [*text, "--mesh", "data=2,pipe=2", "--microbatches", "4"]),
        "resnet": ("resnet", zoo.SMALL["resnet"][1], ["--dim", "batch=8", "--devices", "4"]),
        "deep": ("gpt2", DEEP, [*text, "--cluster", "HGX-H100x2", "--mesh", "data=2,pipe=4,model=2", "--target", "cuda:sm_90", "--precision", "bf16", "--microbatches", "4"]),
    }

    def get(name):
        if name not in made:
            model, options, compile_options = kinds[name]
            path = zoo.MODELS[model].write(folder / f"{name}.onnx", **options)
            tools.compile(path, folder / f"{name}.plan", *compile_options)
            made[name] = folder / f"{name}.plan"
        return made[name]

    return get


@pytest.fixture(scope="module")
def page_of(tools, plans, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def get(name):
        if name not in made:
            made[name] = write(tools, plans(name), folder / f"{name}.html")
        return made[name]

    return get


def write(tools, plan, page, *options):
    printed = tools.call("inspect", plan, "--format", "html", "-o", page, *options).stdout
    assert printed.startswith(f"{page}: ") and printed.endswith(", open it in a browser\n")
    return page


def show(tools, plan, view) -> dict:
    return json.loads(tools.call("inspect", plan, view, "--json").stdout)


# Rows of a table as shown: numbers of cells that have one, else their text.
ROWS = """const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => [...row.cells].map((cell) => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)));
const head = (id, key) => document.querySelector(`#${id} th button[data-key=${key}]`);
const column = (id, key) => { const at = [...document.querySelectorAll(`#${id} th button`)].findIndex((one) => one.dataset.key === key); return rows(id).map((row) => row[at]); };
"""


def test_a_script_error_is_seen(browser, page_of, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text(page_of("data").read_text().replace("'use strict';", "missing();", 1))
    with pytest.raises(AssertionError, match="missing is not defined"):
        browser.start(broken, "--dump-dom")


@pytest.mark.parametrize("name", ["data", "tensor", "pipeline", "resnet", "deep"])
def test_it_is_drawn(browser, page_of, name):
    """All sections are drawn, in light and dark colours; nothing is wider than the window, and no texts of a drawing overlap."""
    page = page_of(name)
    found = browser.evaluate(page, """
        const boxes = (drawing) => [...drawing.querySelectorAll('text')].map((text) => text.getBoundingClientRect());
        const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
        let overlaps = 0;
        redrawAll();
        for (const drawing of document.querySelectorAll('svg')) boxes(drawing).forEach((a, i, all) => all.slice(i + 1).forEach((b) => { overlaps += !apart(a, b); }));
        const canvas = document.querySelector('canvas'), pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return {sections: [...document.querySelectorAll('section')].map((one) => one.id), overlaps, wide: document.documentElement.scrollWidth, window: innerWidth,
                painted: new Set(new Uint32Array(pixels.buffer)).size, charts: document.querySelectorAll('.chart path').length, nodes: document.querySelectorAll('.node').length,
                devices: document.querySelectorAll('.device').length, ranks: data.mesh.ranks, stages: data.programs[0].stages.length};""")
    assert found["sections"] == ["summary", "cluster", "timeline", "memory", "candidates", "model", "collectives", "tensors", "steps"]
    assert found["overlaps"] == 0 and found["wide"] <= found["window"]
    assert found["painted"] > 20 and found["nodes"] > 3
    assert found["charts"] == 2 * found["stages"] and 0 < found["devices"] <= found["ranks"]
    shots = browser.shoot(page, name, 4200)
    assert shots["light"].mean() > 200 and shots["dark"].mean() < 70


def test_small_windows_do_not_scroll_sideways(browser, page_of):
    for name in ("pipeline", "resnet"):
        wide = browser.evaluate(page_of(name), "return [document.documentElement.scrollWidth, innerWidth]", "--window-size=600,900")
        assert wide[0] <= wide[1], name


@pytest.mark.parametrize("name", ["tensor", "pipeline", "deep"])
def test_numbers_are_those_of_inspect(tools, browser, plans, page_of, name):
    plan = plans(name)
    summary, report = show(tools, plan, "summary"), json.loads((plan / "report.json").read_text())
    found = browser.evaluate(page_of(name), ROWS + """
        document.querySelectorAll('select[aria-label="Rows on a page"]').forEach((select) => { select.value = 500; select.dispatchEvent(new Event('change')); });
        head('collectives', 'id').click(); head('collectives', 'id').click();
        const values = {};
        for (const one of document.querySelectorAll('[data-key][data-value]')) values[one.dataset.key] = one.dataset.value;
        const names = ['id', 'kind', 'ranks', 'bytes', 'times', 'us', 'onnx_node', 'because'], columns = names.map((key) => column('collectives', key));
        return {values, collectives: columns[0].map((_, i) => Object.fromEntries(names.map((key, n) => [key, columns[n][i]]))), memory: rows('memory'),
                peaks: [...document.querySelectorAll('.chart')].map((one) => Number(one.dataset.peak))};""")
    values = found["values"]
    for key, value in summary.items():
        if not isinstance(value, list):
            assert values[key] == str(value), key
    (estimate,) = report["estimates"]
    for key in ("step_ms", "compute_ms", "comm_ms"):
        assert float(values[key]) == pytest.approx(estimate[key])
    ranks = show(tools, plan, "memory")["memory_of_a_rank"]
    assert int(values["memory"]) == max(rank["total"] for rank in ranks) == report["memory"]["total_bytes"]
    assert found["memory"] == [list(rank.values()) for rank in ranks]
    simulated = json.loads(tools.call("simulate", plan, "--json").stdout)
    assert found["peaks"] == [stage["peak_bytes"] for stage in simulated["stages"]]
    expected = show(tools, plan, "collectives")["collectives"][:500]
    assert len(found["collectives"]) == len(expected) > 0
    for shown, listed in zip(found["collectives"], expected):
        assert {key: shown[key] for key in ("id", "kind", "ranks", "bytes", "times", "because")} == {key: listed[key] for key in ("id", "kind", "ranks", "bytes", "times", "because")}
        assert shown["us"] == pytest.approx(report["collectives"][listed["id"]]["estimate_us"])


def test_the_timeline_is_the_simulators(tools, plans):
    """timeline.json has the same times, memory and steps as `simulate`."""
    for name in ("tensor", "pipeline"):
        (program,) = json.loads((plans(name) / "timeline.json").read_text())["programs"]
        simulated = json.loads(tools.call("simulate", plans(name), "--json").stdout)
        assert program["step_ms"] == pytest.approx(simulated["programs"][0]["step_ms"]) and program["joined_ns"] == 0
        for stage, expected in zip(program["stages"], simulated["stages"], strict=True):
            for key in ("compute_ms", "comm_ms", "exposed_ms", "peak_bytes", "allocated_bytes"):
                assert stage[key] == pytest.approx(expected[key])
            points = [row for row in simulated["memory"] if row["stage"] == stage["stage"]]
            assert stage["memory"][1::2] == [row["bytes"] for row in points]
            assert stage["memory"][::2] == pytest.approx([1e6 * row["ms"] for row in points], abs=1)
            runs = np.zeros(len(stage["steps"]))
            end = 0
            for stream in stage["streams"]:
                blocks = np.array(stream["blocks"]).reshape(-1, 5)
                np.add.at(runs, blocks[:, 2], blocks[:, 4])
                end = max(end, blocks[:, :2].sum())
            assert runs.tolist() == [step[4] for step in stage["steps"]]
            assert end <= 1e6 * program["step_ms"] + 1


def test_tables_are_sorted_searched_and_turned(browser, page_of):
    found = browser.evaluate(page_of("deep"), ROWS + """
        const table = document.querySelector('#tensors'), search = table.querySelector('input'), result = {};
        const find = (text) => { search.value = text; search.dispatchEvent(new Event('input')); return column('tensors', 'name'); };
        const sorts = () => [...table.querySelectorAll('th')].map((one) => one.getAttribute('aria-sort')).filter((one) => one !== 'none');
        result.first = [column('tensors', 'bytes'), sorts()];
        head('tensors', 'bytes').click();
        result.second = [column('tensors', 'bytes'), sorts()];
        head('tensors', 'name').click();
        result.names = [column('tensors', 'name'), sorts()];
        table.querySelector('.scroll').dispatchEvent(new KeyboardEvent('keydown', {key: 'PageDown', bubbles: true}));
        result.turned = column('tensors', 'name');
        result.count = table.querySelector('.count').textContent;
        result.layer = find('h.7.mlp.c_fc.weight');
        result.none = find('no such tensor');
        return result;""")
    (most, descending), (least, ascending) = found["first"], found["second"]
    assert len(most) == 25 and most == sorted(most, reverse=True) and descending == ["descending"]
    assert len(least) == 25 and least == sorted(least) and ascending == ["ascending"] and least[0] < most[0]
    names, turned = found["names"][0], found["turned"]
    assert found["names"][1] == ["ascending"] and len(turned) == 25 and not set(names[:5]) & set(turned)
    assert found["count"].startswith("26–50 of ")
    assert found["layer"] and all("mlp.c_fc.weight" in name and "{" in name for name in found["layer"]), found["layer"]
    assert found["none"] == []


def test_layers_that_are_alike_are_one_box(browser, page_of):
    scopes = browser.evaluate(page_of("deep"), "return [...document.querySelectorAll('#model .scope')].map((one) => one.dataset.scope)")
    assert scopes[0] == "model" and any(re.fullmatch(r"h\.\{0–.*\}", name) for name in scopes)
    alike = browser.evaluate(page_of("data"), "return [...document.querySelectorAll('#model .times')].map((one) => one.textContent)")
    assert alike == ["× 2"]


def test_a_node_tells_its_reasons(browser, page_of):
    text = browser.evaluate(page_of("tensor"), """
        [...document.querySelectorAll('.node')].find((one) => one.querySelector('.moves')).click();
        const shown = document.getElementById('inspector').textContent;
        dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));
        return [shown, document.getElementById('inspector').hidden];""")
    assert "all_reduce over model" in text[0] and "decided by" in text[0] and "because" in text[0] and text[1] is True


def test_ninety_six_layers_are_small_and_quick(tools, browser, plans, page_of):
    page = page_of("deep")
    assert page.stat().st_size <= 3 << 20
    ready = [int(re.search(r'data-ready="(\d+)"', browser.start(page, "--dump-dom").stdout)[1]) for _ in range(3)]
    assert min(ready) < 1000, ready
    start = time.monotonic()
    write(tools, plans("deep"), page)
    assert time.monotonic() - start < 10


def test_candidates_are_a_pareto_plot(browser, page_of, plans):
    report = json.loads((plans("resnet") / "report.json").read_text())
    known = [one for one in report["candidates"] if max(one["simulated_ms"], one["sum_ms"]) > 0 and max(one["memory_bytes"], one["estimated_memory_bytes"]) > 0]
    assert len(known) > 3
    labels = browser.evaluate(page_of("resnet"), "return [...document.querySelectorAll('.pareto g[aria-label]')].map((one) => one.getAttribute('aria-label'))")
    assert len(labels) == len(known) and labels[-1].startswith(report["strategy"]) and labels[-1].endswith("chosen")
    for one in known:
        assert any(label.startswith(one["strategy"] + ",") for label in labels)


def test_a_sole_candidate_has_no_table(browser, page_of):
    text, rows = browser.evaluate(page_of("data"), "const section = document.querySelector('#candidates'); return [section.textContent, section.querySelectorAll('tr').length]")
    assert "there was no other candidate for --mesh data=4." in text and rows == 0


def test_times_of_collectives_are_simulated(browser, plans, page_of):
    known = {one["id"]: one for one in json.loads((plans("pipeline") / "report.json").read_text())["collectives"]}
    ids, each, in_all = browser.evaluate(page_of("pipeline"), "return ['id', 'us', 'us_in_all'].map((key) => collectives.columns[key])")
    assert len(ids) == len(known) > 0
    assert in_all == pytest.approx([known[one].get("time_us", known[one]["estimate_us"] * known[one]["times"]) for one in ids])
    assert each == pytest.approx([known[one]["estimate_us"] for one in ids])
    assert any("time_us" in one for one in known.values())


def test_warnings_and_remarks_are_apart(tools, browser, plans, tmp_path):
    plan = copy_of(plans("data"), tmp_path)
    report = json.loads((plan / "report.json").read_text())
    (plan / "report.json").write_text(json.dumps(report | {"warnings": ["it is hot"], "remarks": ["it is split", "it is whole"]}))
    notes = browser.evaluate(write(tools, plan, tmp_path / "page.html"), "return [...document.querySelectorAll('#summary .notes')].map((one) => one.textContent)")
    assert "Warnings of the compiler (1)it is hot" in notes and "Remarks of the compiler (2)it is splitit is whole" in notes


def test_a_real_run_stands_beside_the_simulated_one(tools, browser, plans, tmp_path):
    plan = plans("pipeline")
    tools.call("run", plan, "--input", "input_ids=randint(0,200)", "--trace", tmp_path / "run.json")
    events = [event for event in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if event["ph"] == "X"]
    took = max(event["ts"] + event["dur"] for event in events) - min(event["ts"] for event in events)
    page = write(tools, plan, tmp_path / "page.html", "--trace", tmp_path / "run.json")
    found = browser.evaluate(page, """
        const [timeline] = makeTimeline(data.programs[0], 0);
        return {groups: timeline.groups.map((group) => [group.title, group.note]), about: document.querySelector('#timeline .about').textContent, took: data.trace.step_ms,
                simulated: data.programs[0].step_ms, fitted: document.querySelector('#timeline input').checked,
                steps: data.trace.ranks.map((rank) => rank.streams.reduce((sum, stream) => sum + stream.blocks.length / 5, 0))};""")
    assert found["fitted"] == (found["took"] > 4 * found["simulated"])  # a first run is slow
    assert [note for _, note in found["groups"]] == ["simulated", "measured", "measured"] * 2
    assert [title for title, note in found["groups"] if note == "measured"] == ["Rank 0", "Rank 2", "Rank 1", "Rank 3"]
    assert "run.json took" in found["about"] and found["took"] == pytest.approx(took / 1e3, rel=1e-3)
    assert found["steps"] == [sum(event["pid"] == rank for event in events) for rank in range(4)]
    browser.shoot(page, "trace", 2600)
    alone = copy_of(plan, tmp_path)
    (alone / "timeline.json").unlink()
    page = write(tools, alone, tmp_path / "alone.html", "--trace", tmp_path / "run.json")
    assert browser.evaluate(page, "return makeTimeline({stages: [], step_ms: 0}, 0)[0].groups.map((group) => group.title)") == ["Rank 0", "Rank 1", "Rank 2", "Rank 3"]


HOSTILE = "</script><script>document.documentElement.dataset.pwned=1</script>"


def test_names_are_text(tools, browser, tmp_path):
    """Hostile names of nodes, weights, inputs, folders and traces are shown as text, and run nothing."""
    names = [HOSTILE, "<img src=x onerror=document.documentElement.dataset.pwned=2>", "{{data}} {{script}} ${1} \\u003c '\" &lt; \u2028 ü"]
    weight = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), names[0] + "weight")
    nodes = [helper.make_node("MatMul", [names[2], weight.name], ["y"], name=names[0]), helper.make_node("Relu", ["y"], [names[1]], name=f"/{names[1]}/{names[2]}")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(names[2], TensorProto.FLOAT, [4, 8])], [helper.make_tensor_value_info(names[1], TensorProto.FLOAT, [4, 8])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    plan = tmp_path / "<script>{{data}}.plan"
    tools.compile(tmp_path / "m.onnx", plan, "--mesh", "model=2", "--shard", f"{weight.name}=[{{model}},{{}}]")
    page = write(tools, plan, tmp_path / "page.html")
    assert page.read_text().lower().count("<script") == 2
    found = browser.evaluate(page, """return [document.documentElement.dataset.pwned, document.querySelectorAll('script').length, document.querySelectorAll('img').length,
        document.title, document.querySelector('#tensors').textContent, document.querySelector('#model').textContent, document.querySelector('#collectives').textContent]""")
    assert found[:3] == [None, 3, 0]  # the third is the test's own script
    assert found[3] == "<script>{{data}}.plan - gridloom"
    assert names[0] + "weight" in found[4] and names[2] in found[4] and "img src=x" in found[5] and names[0] in found[6]


def test_nothing_is_loaded(page_of):
    text = page_of("deep").read_text()
    assert set(re.findall(r"https?://[^'\"\s)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|script src)|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    assert "default-src 'none'" in text


def test_plans_of_one_operation(tools, browser, tmp_path):
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan")
    page = write(tools, tmp_path / "m.plan", tmp_path / "m.html")
    found = browser.evaluate(page, ROWS + "return [rows('steps').length, rows('tensors').length, document.querySelectorAll('.node').length, document.querySelector('#collectives').textContent]")
    assert found[0] == 1 and found[1] >= 2 and found[2] == 1 and "No rank communicates" in found[3]


def test_plans_without_elements_take_no_time(tools, browser, tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [0, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan")
    page = write(tools, tmp_path / "m.plan", tmp_path / "m.html")
    tiles = "return ['step_ms', 'compute_ms'].map((key) => document.querySelector(`.tile[data-key=${key}]`).textContent)"
    found = browser.evaluate(page, tiles)
    assert found == ["Time of a step0simulated", "Computation00 % of the step"]


def copy_of(plan, folder):
    return shutil.copytree(plan, folder / "copy.plan")


def test_a_hundred_thousand_operations(tools, browser, plans, tmp_path):
    """With a report of that size the page stays small, says what it leaves out, and opens."""
    plan = copy_of(plans("data"), tmp_path)
    report = json.loads((plan / "report.json").read_text())
    kinds = ["loom.add", "loom.dot_general", "loom.reshape", "loom.softmax"]
    report["values"] = [
        {"name": f"/part{i % 97}/group{i % 1009}/{kinds[i % 4]}_{i}", "op": kinds[i % 4], "type": f"tensor<{i % 31 + 1}x{i % 17 + 1}xf32>",
         "sharding": '#dist.sharding<@mesh, [{"data"}, {}]>' if i % 3 else "#dist.sharding<@mesh, [{}, {}]>", "origin": "strategy dp: batch"}
        for i in range(100_000)
    ]  # fmt: skip
    (plan / "report.json").write_text(json.dumps(report))
    page = write(tools, plan, tmp_path / "page.html")
    assert page.stat().st_size < 4 << 20
    found = browser.evaluate(page, "return [document.querySelector('#summary .notes').textContent, document.querySelectorAll('*').length, Number(document.documentElement.dataset.ready)]")
    assert "tensors with the smallest bytes are left out" in found[0] and "of the model's nodes" in found[0].lower()
    assert found[1] < 20_000 and found[2] < 5000


def test_several_programs(tools, browser, tmp_path):
    path = zoo.save(zoo.mlp([64, 64, 64], zoo.Random(0)), tmp_path / "mlp.onnx")
    tools.compile(path, tmp_path / "m.plan", "--dim", "batch=4,16")
    page = write(tools, tmp_path / "m.plan", tmp_path / "m.html")
    found = browser.evaluate(page, """
        const choice = document.querySelector('#timeline select'), before = document.querySelector('#memory .chart').dataset.peak;
        choice.value = 1; choice.dispatchEvent(new Event('change'));
        return [[...choice.options].map((one) => one.textContent), before, document.querySelector('#memory .chart').dataset.peak, data.programs.map((one) => String(one.stages[0].peak_bytes))];""")
    assert [text.split(":")[0] for text in found[0]] == ["main batch=4", "main batch=16"]
    assert [found[1], found[2]] == found[3] and found[1] != found[2]


def refused(tools, code, *call) -> str:
    result = tools.call(*call, check=False)
    assert result.returncode == code and not result.stdout, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_what_is_refused(tools, plans, tmp_path):
    plan, page = plans("data"), tmp_path / "page.html"
    ask = ["inspect", plan, "--format", "html"]
    assert "needs a file for the page: -o page.html" in refused(tools, 2, *ask)
    assert "leave 'memory' out" in refused(tools, 2, "inspect", plan, "memory", "--format", "html", "-o", page)
    for option in (["-o", page], ["--trace", page], ["--force"]):
        assert "are for --format html" in refused(tools, 2, "inspect", plan, *option)
    page.write_text("mine")
    assert "page.html exists and is no page of gridloom inspect; choose another --output, or --force" in refused(tools, 1, *ask, "-o", page)
    assert page.read_text() == "mine"
    write(tools, plan, page, "--force")
    write(tools, plan, page)  # its own page may be replaced
    assert "exists and is no page" in refused(tools, 1, *ask, "-o", tmp_path)
    assert "cannot be written: No such file or directory" in refused(tools, 1, *ask, "-o", tmp_path / "none" / "page.html")
    assert f"the trace '{tmp_path}' cannot be read: Is a directory" in refused(tools, 1, *ask, "-o", tmp_path / "new.html", "--trace", tmp_path)
    inside, before = plan / "manifest.json", (plan / "manifest.json").read_bytes()
    assert f"{inside} is inside the plan {plan}; name a place outside of it" in refused(tools, 1, *ask, "--force", "-o", inside)
    assert inside.read_bytes() == before


def make_trace(*events) -> str:
    return json.dumps({"traceEvents": [{"ph": "X", "name": "k", "pid": 0, "tid": 0, "ts": 0, "dur": 1, "args": {"onnx": "/MatMul"}, **event} for event in events]})


@pytest.mark.parametrize(
    "text,why",
    [
        ("", "is no JSON object with a list 'traceEvents'"),
        ("[]", "is no JSON object with a list 'traceEvents'"),
        ('{"traceEvents": 3}', "times no step"),
        (make_trace(), "times no step"),
        (make_trace({}), "has none of the plan's steps; it is of another plan"),
        (make_trace({"pid": 4}), "has rank 4, and the plan has 4 ranks"),
        (make_trace({"pid": -1}), "has rank -1"),
        (make_trace({"pid": "0"}), "has an event without a rank"),
        (make_trace({"dur": -1}), "has an event at"),
        (make_trace({"ts": 1e300}), "has an event at"),
    ],
    ids=range(10),
)
def test_traces_that_are_none(tools, plans, tmp_path, text, why):
    trace = tmp_path / "trace.json"
    trace.write_text(text)
    line = refused(tools, 1, "inspect", plans("data"), "--format", "html", "-o", tmp_path / "page.html", "--trace", trace)
    assert f"the trace '{trace}'" in line and why in line
    assert not (tmp_path / "page.html").exists()


def read_data(page) -> dict:
    (text,) = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(text)


DEEP_TEXT = "[" * 100_000 + "]" * 100_000


def test_files_that_nest_deeply(tools, plans, tmp_path):
    """Recursive readers would overflow the stack."""
    plan, page = copy_of(plans("tensor"), tmp_path), tmp_path / "page.html"
    known = (plan / "report.json").read_text()
    (plan / "report.json").write_text('{"warnings": ' + DEEP_TEXT + "," + known.lstrip()[1:])
    why = "report.json has more than 64 lists and objects in each other; compile the plan again"
    assert why in refused(tools, 1, "explain", plan)
    notes = read_data(write(tools, plan, page))["notes"]
    assert "report.json is damaged: it has more than 64 lists and objects in each other; reasons, " in str(notes)
    compared = tools.call("diff", plan, plans("data"), check=False)
    assert compared.returncode in (0, 1) and why in compared.stdout + compared.stderr
    for call in (["--why-not", "mesh=data=4"], ["--collective", "0", "--alternatives"]):
        assert why.replace("report.json", "report.json'") in refused(tools, 1, "explain", plan, *call)
    (plan / "report.json").write_text(known)
    (plan / "timeline.json").write_text('{"programs": ' + DEEP_TEXT + "}")
    assert "timeline.json is damaged: it has more than 64 lists" in str(read_data(write(tools, plan, page))["notes"])
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": ' + DEEP_TEXT + "}")
    assert "has more than 64 lists" in refused(tools, 1, "inspect", plans("tensor"), "--format", "html", "-o", page, "--trace", trace)
    # The deepest nesting that readers accept.
    (plan / "timeline.json").unlink()
    (plan / "report.json").write_text('{"warnings": ' + "[" * 60 + "]" * 60 + "," + known.lstrip()[1:])
    write(tools, plan, page)


def test_reports_that_no_compiler_wrote(tools, browser, plans, tmp_path):
    plan, page = copy_of(plans("tensor"), tmp_path), tmp_path / "page.html"
    known = json.loads((plan / "report.json").read_text())
    often = {"name": "/often", "op": "loom.add", "type": "tensor<8x4xf32>", "sharding": "#dist.sharding<@mesh, [{" + ", ".join(['"data"'] * 64) + "}, {}]>", "origin": ""}
    # A scope and a node whose texts would be equal if names and texts were joined by newlines.
    scope = {"name": "/h.0/y\n\nOP TYPE /leaf", "op": "q", "type": "t", "sharding": "s", "origin": ""}
    node = {"name": "/h.1/y", "op": "OP", "type": "TYPE", "sharding": "\n\n0", "origin": ""}
    (plan / "report.json").write_text(json.dumps(known | {"values": [scope, node, *known["values"], often]}))
    data = read_data(write(tools, plan, page))
    names = data["tensors"]["columns"]["name"]
    names = [names["texts"][at] for at in names["at"]] if isinstance(names, dict) else names
    assert data["tensors"]["columns"]["device_bytes"][names.index("/often")] == 4 * 4
    assert [one["name"] for one in data["model"]["tree"]["children"][:2]] == ["h.0", "h.1"]
    browser.evaluate(page, "return 1")

    # Numbers outside the integers' range are clamped.
    for value in (1e300, -1e300, -1, 1e19, 2**64 - 1):
        huge = json.loads(json.dumps(known))
        for number in ("total_bytes", "limit_bytes"):
            huge["memory"][number] = value
        for one in huge["collectives"]:
            one |= {"bytes": value, "times": value, "time_us": value, "exposed_us": -value, "stage": value, "group": value}
        for one in huge["costs"]:
            one |= {"times": value, "ms": value, "stage": value}
        for one in huge["candidates"]:
            one |= {"memory_bytes": value}
        (plan / "report.json").write_text(json.dumps(huge))
        write(tools, plan, page)
        shown = show_json(tools, "explain", plan)
        assert shown["total_bytes"] == (min(value, 2**53) if value > 0 else 0)
        tools.call("explain", plan)
        tools.call("explain", plan, "--collective", "0")
        tools.call("diff", plan, plan)


def show_json(tools, *call) -> dict:
    return json.loads(tools.call(*call, "--json").stdout)


def test_searching_in_folded_names_is_arithmetic(browser, page_of):
    """A row may stand for a huge range of numbers; a search must find what a list of them would contain."""
    found = browser.evaluate(
        page_of("data"),
        """const slow = (text, word) => {
            const [, before, list, after] = /^([^\\n]*)\\{([\\d,-]+)\\}([^\\n]*)/m.exec(text);
            return /\\d/.test(word) && list.split(',').some((range) => {
                const [first, last = first] = range.split('-').map(Number);
                for (let number = first; number <= last; ++number) if ((before + number + after).includes(word)) return true;
                return false;
            });
        };
        const texts = ['h.{0-11}.x', 'h.{7}.1x', 'a1{3,8-113}0b', 'q{95-1205}', '{0-9,20-31}.w'], wrong = [];
        const words = ['x', 'h.', '.x', 'h.0', '.9.', '.1', 'h.11.x', 'h.12', '7.1', '1', '00', '01', '10', '13', 'a13', 'a18', '80', '1130b', '1140', 'q9', 'q94', 'q10', '205', '206', '0.w', '19.w', '2', '120', 'q0', '09', '0'];
        for (const text of texts) for (const word of words) if (!text.includes(word) && slow(text, word) !== expandsTo(text, word)) wrong.push([text, word]);
        const begin = performance.now(), huge = 'h.{0-999999999}.x';
        const hits = ['9.y', 'h.77.x', '123456789', '9999999999', '.0', 'h.01', '0000', '5'].map((word) => expandsTo(huge, word));
        const odd = ['h.{0-' + '9'.repeat(400) + '}.x', '{-}', '{,}', '{5-2}', '{'.repeat(50000)].map((text) => expandsTo(text, '8y9'));
        return [wrong, hits, odd, performance.now() - begin];""",
    )
    assert found[:3] == [[], [False, True, True, False, True, False, True, True], [False] * 5]
    assert found[3] < 2_000


def test_files_that_are_missing_or_damaged(tools, browser, plans, tmp_path):
    plan = copy_of(plans("tensor"), tmp_path)
    timeline, report = json.loads((plan / "timeline.json").read_text()), json.loads((plan / "report.json").read_text())

    def damage(change):
        changed = json.loads(json.dumps(timeline))
        change(changed["programs"][0])
        (plan / "timeline.json").write_text(json.dumps(changed))
        data = read_data(write(tools, plan, tmp_path / "page.html"))
        assert data["programs"] == [] and data["tensors"]["rows"] > 0
        (note,) = [note for note in data["notes"] if "timeline.json" in note]
        return note

    left = "the simulated timeline and memory curve are left out. Compile the plan again."
    assert damage(lambda program: program.pop("step_ms")) == f"timeline.json is damaged: step_ms is missing or wrong; {left}"
    first = lambda program: program["stages"][0]  # noqa: E731
    for change, field in [
        (lambda program: first(program)["streams"][0]["blocks"].__setitem__(2, 10_000), "a block's step"),
        (lambda program: first(program)["streams"][0]["blocks"].pop(), "blocks"),
        (lambda program: first(program)["streams"].__setitem__(0, 3), "blocks"),
        (lambda program: first(program).pop("memory"), "memory"),
        (lambda program: first(program)["steps"][0].pop(), "a step"),
        (lambda program: program.pop("stages"), "stages"),
        (lambda program: program.update(stages=None), "stages"),
        (lambda program: first(program).pop("steps"), "steps"),
        (lambda program: first(program).update(streams={}), "streams"),
        (lambda program: program["stages"].append(7), "stage"),
    ]:
        assert damage(change).startswith(f"timeline.json is damaged: {field} is missing or wrong; ")
    text = browser.evaluate(tmp_path / "page.html", "return document.querySelector('#summary').textContent")
    assert left in text
    (plan / "timeline.json").write_text("{}")
    assert "timeline.json is damaged: programs" in str(read_data(write(tools, plan, tmp_path / "page.html"))["notes"])
    for text in ("", "[]", json.dumps(timeline)[:-9]):
        (plan / "timeline.json").write_text(text)
        (plan / "report.json").write_text(text)
        data = read_data(write(tools, plan, tmp_path / "page.html"))
        assert data["programs"] == [] and data["collectives"]["rows"] > 0
        assert f"timeline.json is damaged: it is not a JSON object; {left}" in data["notes"]
        assert "report.json is damaged: it is not a JSON object; reasons, " in str(data["notes"])

    known = report | {"collectives": [one | {"exposed_us": 1.5 + one["id"]} for one in report["collectives"]]}
    (plan / "report.json").write_text(json.dumps(known))
    (plan / "timeline.json").write_text(json.dumps(timeline))
    exposed = browser.evaluate(write(tools, plan, tmp_path / "page.html"), ROWS + "return column('collectives', 'exposed_us')")
    assert sorted(exposed) == [1.5 + one["id"] for one in report["collectives"]] != []

    (plan / "timeline.json").unlink()
    strange = report | {"candidates": 3, "values": [1, {"name": 2}], "collectives": {}, "estimates": [[]], "levels": [1], "axes": "x", "memory": [], "warnings": [{}]}
    (plan / "report.json").write_text(json.dumps(strange))
    text = browser.evaluate(write(tools, plan, tmp_path / "page.html"), "return document.querySelector('#summary').textContent")
    assert "The plan has no timeline.json: compile it again" in text
    (plan / "report.json").unlink()
    text = browser.evaluate(write(tools, plan, tmp_path / "page.html"), "return document.querySelector('#summary').textContent + document.querySelector('#collectives').textContent")
    assert "The plan has no report.json" in text and "all_reduce" in text
