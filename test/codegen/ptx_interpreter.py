"""Runs PTX without a GPU, one thread after another: slow, but every access is checked.

    kernels = ptx_interpreter.parse(text)
    kernels["name"].run(grid, block, [bytearray, ...])

Arguments are buffers, in the order of the kernel's parameters, and are written in place. An access
outside of its buffer or not aligned to its size raises PtxError. Only what our kernels use is here;
an unknown instruction raises PtxError too. Threads are run to their end in turn, so kernels with
barriers or shuffles are refused.
"""

import math
import re
import struct

_INTEGER = re.compile(r"[bus](8|16|32|64)$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{}\[\]]+")
_SPECIAL = re.compile(r"%(tid|ctaid|ntid|nctaid)\.([xyz])$")


class PtxError(Exception):
    """What the kernel did wrong, or what the interpreter has not."""


def _f32(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _float_to_bits(value, kind):
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind == "f16":
        try:
            return struct.unpack("<H", struct.pack("<e", value))[0]
        except OverflowError:
            return 0xFC00 if value < 0 else 0x7C00
    return struct.unpack("<I", struct.pack("<f", _f32(value)))[0]


def _bits_to_float(bits, kind):
    if kind == "f64":
        return struct.unpack("<d", struct.pack("<Q", bits & (2**64 - 1)))[0]
    if kind == "f16":
        return struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]


def _size(kind):
    match = re.search(r"\d+$", kind)
    return int(match.group()) // 8 if match else 4


def _decode(bits, kind):
    """Register bits as a Python number of type `kind`."""
    if kind.startswith("f"):
        return _bits_to_float(bits, kind)
    width = 8 * _size(kind)
    bits &= (1 << width) - 1
    if kind[0] == "s" and bits >> (width - 1):
        bits -= 1 << width
    return bits


def _encode(value, kind):
    if kind.startswith("f"):
        return _float_to_bits(value, kind)
    return int(value) & ((1 << (8 * _size(kind))) - 1)


def _divide(x, y):
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if y == 0:
        return math.nan if x == 0 else math.copysign(math.inf, x) * math.copysign(1, y)
    return x / y


def _safe(function, domain_error):
    def call(x):
        try:
            return function(x)
        except ValueError:
            return domain_error(x)
        except OverflowError:
            return math.inf

    return call


_log2 = _safe(math.log2, lambda x: -math.inf if x == 0 else math.nan)
_sqrt = _safe(math.sqrt, lambda x: math.nan)
_exp2 = _safe(lambda x: 2.0**x, lambda x: math.nan)


def _round(value, mode):
    if math.isinf(value) or math.isnan(value):
        return value
    functions = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
    return functions[mode](value)


def _minimum(x, y, propagate, pick):
    if math.isnan(x) or math.isnan(y):
        return math.nan if propagate else (y if math.isnan(x) else x)
    return pick(x, y)


def _compare(name, x, y):
    unordered = isinstance(x, float) and (math.isnan(x) or math.isnan(y))
    if name == "nan":
        return unordered
    if name == "num":
        return not unordered
    if len(name) == 3 and name.endswith("u"):
        return unordered or _compare(name[:2], x, y)
    if unordered:
        return False
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    return {
        "eq": x == y,
        "ne": x != y,
        "lt": x < y,
        "le": x <= y,
        "gt": x > y,
        "ge": x >= y,
    }[name]


class Kernel:
    """One entry: its parameters' names and its instructions."""

    def __init__(self, name, parameters, body, constants):
        self.name = name
        self.parameters = parameters
        self.constants = constants
        self.code = []
        self.labels = {}
        for line in body.splitlines():
            self._parse_line(line.split("//")[0].strip())

    def _parse_line(self, line):
        if not line or line in "{}" or line.startswith((".reg", ".loc", ".pragma")):
            return
        label = re.match(r"([\w$.]+):$", line)
        if label:
            self.labels[label[1]] = len(self.code)
            return
        match = re.match(r"(?:@(!?)(%p\d+)\s+)?([\w.:]+)\s*(.*?);$", line)
        if not match:
            raise PtxError(f"{self.name}: cannot parse '{line}'")
        operands = _OPERAND.findall(match[4])
        self.code.append((match[2], bool(match[1]), match[3].split("."), operands, line))

    def run(self, grid, block, buffers):
        """Runs all threads. `grid` and `block` have three numbers."""
        if len(buffers) != len(self.parameters):
            raise PtxError(f"{self.name} has {len(self.parameters)} parameters, not {len(buffers)}")
        memory = _Memory(buffers, self.constants)
        for bz in range(grid[2]):
            for by in range(grid[1]):
                for bx in range(grid[0]):
                    for tz in range(block[2]):
                        for ty in range(block[1]):
                            for tx in range(block[0]):
                                special = {
                                    "ctaid": (bx, by, bz),
                                    "tid": (tx, ty, tz),
                                    "ntid": block,
                                    "nctaid": grid,
                                }
                                _Thread(self, memory, special).run()


class _Memory:
    """Buffers, each at a far address of its own."""

    def __init__(self, buffers, constants):
        self.buffers = list(buffers)
        self.symbols = {}
        for name, data in constants.items():
            self.symbols[name] = self.address(len(self.buffers))
            self.buffers.append(data)

    @staticmethod
    def address(number):
        return (number + 1) << 40

    def find(self, address, size, what):
        number, offset = (address >> 40) - 1, address & ((1 << 40) - 1)
        if not 0 <= number < len(self.buffers) or offset + size > len(self.buffers[number]):
            raise PtxError(f"'{what}' accesses {size} bytes at {offset} of buffer {number}, outside")
        if offset % size:
            raise PtxError(f"'{what}' accesses {size} bytes at {offset}, not aligned")
        return self.buffers[number], offset


class _Thread:
    def __init__(self, kernel, memory, special):
        self.kernel = kernel
        self.memory = memory
        self.special = special
        self.registers = {}

    def run(self):
        at, steps = 0, 0
        while True:
            predicate, negated, opcode, operands, line = self.kernel.code[at]
            at, steps = at + 1, steps + 1
            if steps > 1_000_000:
                raise PtxError(f"{self.kernel.name} does not end")
            if predicate and bool(self.registers[predicate]) == negated:
                continue
            if opcode[0] in ("ret", "exit"):
                return
            if opcode[0] == "bra":
                at = self.kernel.labels[operands[-1]]
                continue
            handler = getattr(self, "_" + opcode[0], None) or self._arithmetic
            handler(opcode, operands, line)

    # Operands

    def bits(self, operand, kind="b64"):
        special = _SPECIAL.match(operand)
        if special:
            return self.special[special[1]]["xyz".index(special[2])]
        if operand.startswith("%"):
            return self.registers[operand]
        if operand.startswith("0f"):
            bits = int(operand[2:], 16)
            return _float_to_bits(_bits_to_float(bits, "f32"), "f64") if kind == "f64" else bits
        if operand.startswith("0d"):
            return int(operand[2:], 16)
        if operand in self.memory.symbols:
            return self.memory.symbols[operand]
        return int(operand.rstrip("U"), 0)

    def value(self, operand, kind):
        if kind == "pred":
            return bool(self.bits(operand))
        return _decode(self.bits(operand, kind), kind)

    def set(self, operand, value, kind):
        if operand != "_":
            self.registers[operand] = bool(value) if kind == "pred" else _encode(value, kind)

    def address(self, operand):
        match = re.match(r"\[([%\w$.]+)\s*(?:\+\s*(-?\d+))?\]$", operand)
        return self.bits(match[1]) + int(match[2] or 0)

    # Memory and moves

    def _ld(self, opcode, operands, line):
        kind = opcode[-1]
        if opcode[1] == "param":
            name = operands[1].strip("[]")
            number = self.kernel.parameters.index(name)
            self.registers[operands[0]] = self.memory.address(number)
            return
        targets = operands[0].strip("{}").split(",")
        size = _size(kind)
        data, offset = self.memory.find(self.address(operands[1]), size * len(targets), line)
        for i, target in enumerate(targets):
            raw = int.from_bytes(data[offset + i * size : offset + (i + 1) * size], "little")
            self.registers[target.strip()] = _encode(_decode(raw, kind), kind)

    def _st(self, opcode, operands, line):
        sources = operands[1].strip("{}").split(",")
        size = _size(opcode[-1])
        data, offset = self.memory.find(self.address(operands[0]), size * len(sources), line)
        for i, source in enumerate(sources):
            bits = self.bits(source.strip()) & ((1 << (8 * size)) - 1)
            data[offset + i * size : offset + (i + 1) * size] = bits.to_bytes(size, "little")

    def _mov(self, opcode, operands, line):
        kind = opcode[-1]
        if operands[1].startswith("{"):
            parts = [part.strip() for part in operands[1].strip("{}").split(",")]
            width = 8 * _size(kind) // len(parts)
            bits = sum((self.bits(p) & ((1 << width) - 1)) << (i * width) for i, p in enumerate(parts))
            self.registers[operands[0]] = bits
        elif operands[0].startswith("{"):
            parts = [part.strip() for part in operands[0].strip("{}").split(",")]
            width = 8 * _size(kind) // len(parts)
            bits = self.bits(operands[1])
            for i, part in enumerate(parts):
                if part != "_":
                    self.registers[part] = (bits >> (i * width)) & ((1 << width) - 1)
        else:
            self.registers[operands[0]] = self.bits(operands[1], kind)

    def _cvta(self, opcode, operands, line):
        self.registers[operands[0]] = self.bits(operands[1])

    def _cvt(self, opcode, operands, line):
        target, source = opcode[-2], opcode[-1]
        if target.endswith("x2"):
            # The first operand is the upper half.
            for half, operand in zip("hl", operands[1:]):
                self._cvt([*opcode[:-2], target[:-2], source], [half, operand], line)
            upper, lower = self.registers.pop("h"), self.registers.pop("l")
            self.registers[operands[0]] = upper << 16 | lower
            return
        if target == "bf16":
            # Round to nearest even by adding half of the last place.
            bits = _float_to_bits(self.value(operands[-1], "f32"), "f32")
            self.registers[operands[0]] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return
        if source == "bf16":
            self.registers[operands[0]] = (self.bits(operands[1]) & 0xFFFF) << 16
            return
        value = self.value(operands[1], source)
        for mode in ("rni", "rzi", "rmi", "rpi"):
            if mode in opcode:
                value = _round(value, mode)
        if "sat" in opcode:
            value = 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)
        if source.startswith("f") and not target.startswith("f"):
            value = self._saturate(value, target)
        self.set(operands[0], float(value) if target.startswith("f") else value, target)

    @staticmethod
    def _saturate(value, kind):
        if math.isnan(value):
            return 0
        width = 8 * _size(kind)
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
        return max(low, min(high, value if math.isinf(value) else int(value)))

    # Arithmetic

    def _setp(self, opcode, operands, line):
        kind = opcode[-1]
        result = _compare(opcode[1], self.value(operands[1], kind), self.value(operands[2], kind))
        if opcode[2] in ("and", "or", "xor"):
            other = self.value(operands[3], "pred")
            result = {"and": result and other, "or": result or other, "xor": result != other}[opcode[2]]
        self.set(operands[0], result, "pred")

    def _selp(self, opcode, operands, line):
        chosen = operands[1] if self.value(operands[3], "pred") else operands[2]
        self.registers[operands[0]] = self.bits(chosen, opcode[-1])

    def _arithmetic(self, opcode, operands, line):
        name, kind = opcode[0], opcode[-1]
        values = [self.value(operand, kind) for operand in operands[1:]]
        result_kind = kind
        if "wide" in opcode:
            result_kind = kind[0] + str(16 * _size(kind))
            if name == "mad":
                values[2] = self.value(operands[3], result_kind)
        if "hi" in opcode:
            self.set(operands[0], (values[0] * values[1]) >> (8 * _size(kind)), kind)
            return
        is_float = kind.startswith("f")
        function = (_FLOAT if is_float else _ANY).get(name) or _ANY.get(name)
        if name in ("min", "max") and is_float:
            pick = min if name == "min" else max
            self.set(operands[0], _minimum(*values, "NaN" in opcode, pick), kind)
            return
        if not function:
            raise PtxError(f"{self.kernel.name}: no instruction '{line}'")
        result = function(*values)
        if is_float and "rm" in opcode:
            rounded = _f32(result)
            result = math.nextafter(rounded, -math.inf) if rounded > result else rounded
            if _f32(result) != result:
                result = _bits_to_float(_float_to_bits(rounded, "f32") - (1 if rounded > 0 else -1), "f32")
        if is_float and "sat" in opcode:
            result = min(max(result, 0.0), 1.0)
        self.set(operands[0], result, result_kind)

    def _shl(self, opcode, operands, line):
        kind, count = opcode[-1], self.value(operands[2], "u32")
        value = self.value(operands[1], kind)
        self.set(operands[0], value << count if count < 8 * _size(kind) else 0, kind)

    def _shr(self, opcode, operands, line):
        kind, count = opcode[-1], self.value(operands[2], "u32")
        self.set(operands[0], self.value(operands[1], kind) >> min(count, 8 * _size(kind)), kind)

    def _prmt(self, opcode, operands, line):
        source = (self.bits(operands[2]) & 0xFFFFFFFF) << 32 | (self.bits(operands[1]) & 0xFFFFFFFF)
        selector, result = self.bits(operands[3]), 0
        for i in range(4):
            choice = selector >> (4 * i) & 15
            byte = source >> (8 * (choice & 7)) & 255
            if choice & 8:
                byte = 255 if byte >> 7 else 0
            result |= byte << (8 * i)
        self.registers[operands[0]] = result

    def _refuse(self, opcode, operands, line):
        raise PtxError(f"{self.kernel.name}: threads run in turn, so '{line}' cannot be run")

    _bar = _barrier = _shfl = _vote = _refuse


_ANY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "mad": lambda x, y, z: x * y + z,
    "fma": lambda x, y, z: x * y + z,
    "neg": lambda x: -x,
    "abs": abs,
    "not": lambda x: ~x if not isinstance(x, bool) else not x,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "min": min,
    "max": max,
    "div": lambda x, y: int(x / y) if abs(x) < 2**53 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1),
    "rem": lambda x, y: abs(x) % abs(y) * (-1 if x < 0 else 1),
}
_FLOAT = {
    "div": _divide,
    "rcp": lambda x: _divide(1.0, x),
    "ex2": _exp2,
    "lg2": _log2,
    "sqrt": _sqrt,
    "rsqrt": lambda x: _divide(1.0, _sqrt(x)),
    "copysign": lambda x, y: math.copysign(y, x),
    "tanh": math.tanh,
}


def parse(text):
    """The kernels of a PTX file, by name."""
    constants = {}
    for match in re.finditer(
        r"^\.(?:visible )?\.?(?:global|const)\s+\.align\s+\d+\s+\.b(\d+)\s+([\w$.]+)(?:\[\d+\])?\s*=\s*\{?([^;}]*)\}?;",
        text,
        re.M,
    ):
        size = int(match[1]) // 8
        data = b"".join(int(value, 0).to_bytes(size, "little") for value in match[3].split(","))
        constants[match[2]] = bytearray(data)
    kernels = {}
    for match in re.finditer(r"\.entry\s+([\w$.]+)\s*\((.*?)\)(.*?)\n\{(.*?)\n\}", text, re.S):
        parameters = re.findall(r"\.param\s+[^,\n]*?([\w$.]+)\s*(?:,|\n|$)", match[2])
        kernels[match[1]] = Kernel(match[1], parameters, match[4], constants)
    return kernels
