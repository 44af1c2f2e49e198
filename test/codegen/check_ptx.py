"""Compares the kernels of gpu-numerics.mlir, run by run-ptx, with plain Python."""

import math
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

random.seed(7)


def gelu_erf(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def bf16_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def run(folder, code, name, grid, threads, inputs, outputs):
    """Runs kernel `name` of a PTX text and returns the contents of `outputs`. Exits if it accesses foreign memory, races or the like."""
    ptx = folder / "kernel.ptx"
    ptx.write_text(code, encoding="utf-8")
    files = [folder / f"tensor{number}" for number in range(len(inputs) + len(outputs))]
    for file, content in zip(files, [*inputs, *map(bytes, outputs)]):
        file.write_bytes(content)
    command = ["run-ptx", ptx, name, *grid, threads, len(inputs), *files]
    if subprocess.run(list(map(str, command))).returncode:
        sys.exit(f"{name} does what it must not")
    return [file.read_bytes() for file in files[len(inputs) :]]


def pack(code, values):
    if code == "y":
        return bytearray(struct.pack(f"<{len(values)}H", *map(bf16_bits, values)))
    return bytearray(struct.pack(f"<{len(values)}{code}", *values))


def unpack(code, data):
    if code == "y":
        return [bf16_value(bits) for bits in struct.unpack(f"<{len(data) // 2}H", data)]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def reals(count, code="f"):
    return unpack(code, pack(code, [random.uniform(-3, 3) for _ in range(count)]))


def case_bias_gelu_erf():
    x, b = reals(60), reals(12)
    return [("f", x), ("f", b)], [("f", [gelu_erf(x[i] + b[i % 12]) for i in range(60)])]


def case_gelu_tanh():
    x = reals(301)
    return [("f", x)], [("f", [gelu_tanh(v) for v in x])]


def case_functions():
    x = reals(28)
    functions = [
        math.exp,
        math.tanh,
        lambda v: 1 / (1 + math.exp(-v)),
        lambda v: v,
        lambda v: math.exp(v / 2),
        lambda v: math.exp(-v / 2),
        lambda v: math.tanh(v) * math.exp(-v),
        lambda v: max(v, math.tanh(v)),
    ]
    return [("f", x)], [("f", [function(v) for v in x]) for function in functions]


def case_masked():
    x, m = reals(120), [random.randrange(2) for _ in range(24)]
    out = [x[i] if m[i // 40 * 8 + i % 8] else -1.0e9 for i in range(120)]
    return [("f", x), ("q", m)], [("f", out), ("B", m)]


def case_split_heads():
    x = reals(144)
    at = lambda b, s, h, d: x[((b * 3 + s) * 3 + h) * 8 + d]
    plain = [at(b, s, h, d) for b in range(2) for h in range(3) for s in range(3) for d in range(8)]
    turned = [at(b, s, h, d) for b in range(2) for h in range(3) for d in range(8) for s in range(3)]
    return [("f", x)], [("f", plain), ("f", turned)]


def case_embed():
    # Indices out of range must be clamped: the interpreter refuses such reads.
    table, index = reals(80), [3, 9, 0, 99, 5, -4]
    rows = [min(max(i, 0), 9) for i in index]
    return [("f", table), ("q", index)], [("f", [table[i * 8 + k] for i in rows for k in range(8)])]


def case_constants():
    x, y = reals(10), reals(6)
    out = []
    for r in range(2):
        row = [x[r * 5 + i] * (i + 1) for i in range(5)] + y[r * 3 : r * 3 + 3]
        out += [value + i for i, value in enumerate(row)]
    return [("f", x), ("f", y)], [("f", out)]


def case_pad_around():
    x = reals(30)

    def at(a, b, c):
        return x[(a * 3 + b) * 5 + c] if 0 <= b < 3 and 0 <= c < 5 else 0.5

    return [("f", x)], [("f", [at(a, b - 1, c - 2) for a in range(2) for b in range(4) for c in range(8)])]


def case_columns():
    x = reals(54)
    return [("f", x)], [("f", [x[row * 9 + 2 * o + k] for row in range(6) for k in range(3) for o in range(4)])]


def case_convolve_channels():
    x, w = reals(210), reals(27)

    def sum_at(n, c, i, j):
        return sum(
            x[((n * 3 + c) * 5 + i + k) * 7 + 2 * j + l] * w[(c * 3 + k) * 3 + l]
            for k in range(3)
            for l in range(3)
        )

    places = [(n, c, i, j) for n in range(2) for c in range(3) for i in range(3) for j in range(3)]
    return [("f", x), ("f", w)], [("f", [sum_at(*place) for place in places])]


def case_halves():
    x, y = reals(9, "e"), reals(9, "y")
    out = [a + b for a, b in zip(x, y)]
    return [("e", x), ("y", y)], [("e", out), ("y", out)]


TOLERANCE = {"f": 2e-6, "e": 1e-3, "y": 8e-3}


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    # Each kernel is a module of its own, after a line with its launch dimensions.
    launch = r"// kernel (\w+) grid (\d+) x (\d+) x (\d+) block (\d+)\n(.*?)(?=// kernel|\Z)"
    kernels = {name: (code, *map(int, sizes)) for name, *sizes, code in re.findall(launch, text, re.S)}
    cases = {name[5:]: value for name, value in globals().items() if name.startswith("case_")}
    if set(kernels) != set(cases):
        sys.exit(f"kernels {sorted(kernels)} are not the cases {sorted(cases)}")
    for name, case in cases.items():
        inputs, outputs = case()
        text, *grid, threads = kernels[name]
        with tempfile.TemporaryDirectory() as folder:
            given = [pack(code, values) for code, values in inputs]
            sizes = [len(pack(code, values)) for code, values in outputs]
            results = run(Path(folder), text, name, grid, threads, given, sizes)
        worst = 0.0
        for (code, expected), data in zip(outputs, results):
            for i, (value, wanted) in enumerate(zip(unpack(code, data), expected)):
                error = abs(value - wanted) / max(1, abs(wanted))
                if not error <= TOLERANCE.get(code, 0):
                    sys.exit(f"{name}: element {i} is {value}, not {wanted}")
                worst = max(worst, error)
        print(f"{name}: largest error {worst:.1e}")


main()
