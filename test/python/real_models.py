"""Trained models that packages ship, and real inputs for them. Files are read from the packages, which are never imported."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = (
    "Split the batch over two devices",
    "The cat sleeps on the windowsill",
    "Shares dropped in value this day",
    "How do I reset my password again",
)
FILES = {
    "python/gridloom/session.py": "python",
    "README.md": "markdown",
    "runtime/core/Plan.cpp": "cpp",
    "CMakeLists.txt": "cmake",
}


def package_file(package: str, path: str) -> Path:
    """A file inside an installed package."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"package {package} is not installed; run scripts/bootstrap")
    return Path(found.submodule_search_locations[0]) / path


def draw(sentence: str, height: int, width: int) -> np.ndarray:
    """A sentence in black on white, as bytes [height, width, 3]."""
    picture = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(size=height * 0.6)
    ImageDraw.Draw(picture).text((8, height * 0.12), sentence, fill="black", font=font)
    return np.asarray(picture)


def _normalised(pictures: list[np.ndarray], mean, deviation) -> np.ndarray:
    pixels = (np.stack(pictures) / 255 - np.array(mean)) / np.array(deviation)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2).astype(np.float32))


def detector_inputs() -> dict[str, np.ndarray]:
    """Four pages of one line each, 64 by 320."""
    pages = []
    for sentence in SENTENCES:
        page = np.full((64, 320, 3), 255, np.uint8)
        page[20:44] = draw(sentence, 24, 320)
        pages.append(page)
    return {"x": _normalised(pages, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])}


def detector_finds_lines(outputs: list[np.ndarray]) -> None:
    """The text map must be high inside the line and low above and below it, on every page."""
    score = outputs[0][:, 0]
    assert (score[:, 26:38, 10:150].max(axis=(1, 2)) > 0.5).all()
    assert (score[:, :12].max(axis=(1, 2)) < 0.3).all() and (score[:, 54:].max(axis=(1, 2)) < 0.3).all()


def recogniser_inputs() -> dict[str, np.ndarray]:
    return {"x": _normalised([draw(s, 48, 480) for s in SENTENCES], [0.5] * 3, [0.5] * 3)}


def recogniser_reads(outputs: list[np.ndarray]) -> None:
    model = onnx.load(str(MODELS["ocr-recogniser"].path()))
    letters = ["", *{p.key: p.value for p in model.metadata_props}["character"].splitlines(), " "]
    for sentence, scores in zip(SENTENCES, outputs[0]):
        best = scores.argmax(-1)
        kept = [b for i, b in enumerate(best) if b and (i == 0 or b != best[i - 1])]
        assert "".join(letters[b] for b in kept).replace(" ", "") == sentence.replace(" ", "")


def file_inputs() -> dict[str, np.ndarray]:
    """The first and last 1024 bytes of this repository's own files, as magika expects them."""
    rows = []
    for name in FILES:
        data = (ROOT / name).read_bytes()
        begin, end = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
        rows.append([*begin, *[256] * (1024 - len(begin)), *[256] * (1024 - len(end)), *end])
    return {"bytes": np.array(rows, np.int32)}


def files_are_recognised(outputs: list[np.ndarray]) -> None:
    config = json.loads(package_file("magika", "models/standard_v3_3/config.min.json").read_text())
    labels = [config["target_labels_space"][i] for i in outputs[0].argmax(-1)]
    assert labels == list(FILES.values())


def notes_inputs() -> dict[str, np.ndarray]:
    """Two seconds of decaying tones with harmonics at 22050 Hz: A4, C5, E5 and A3."""
    time = np.arange(43844) / 22050
    waves = []
    for frequency in (440.0, 523.25, 659.26, 220.0):
        waves.append(sum(np.sin(2 * np.pi * frequency * k * time) / k**2 for k in range(1, 6)) * np.exp(-time) * 0.3)
    return {"serving_default_input_2:0": np.array(waves, np.float32)[:, :, None]}


def notes_are_heard(outputs: list[np.ndarray]) -> None:
    notes = next(o for o in outputs if o.shape[-1] == 88)  # onsets or sounding notes
    assert list(notes.max(axis=1).argmax(-1) + 21) == [69, 72, 76, 57]


def speech_inputs() -> dict[str, np.ndarray]:
    """Half a second at 16 kHz in windows of 576 samples: a buzz with two formants, switched on and off."""
    time = np.arange(16 * 512 + 64) / 16000
    buzz = np.sign(np.sin(2 * np.pi * 120 * time)) * (np.sin(2 * np.pi * 700 * time) + np.sin(2 * np.pi * 1220 * time))
    sound = (0.1 * buzz * (np.sin(2 * np.pi * 3 * time) > 0)).astype(np.float32)
    windows = np.stack([sound[512 * i : 512 * i + 576] for i in range(16)])
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": windows, "h": state, "c": state}


def probabilities(outputs: list[np.ndarray]) -> None:
    assert outputs[0].shape == (16,) and (outputs[0] >= 0).all() and (outputs[0] <= 1).all()


@dataclasses.dataclass(frozen=True)
class RealModel:
    """`check` asserts that outputs make sense, in addition to the comparison with a reference."""

    package: str
    file: str
    inputs: Callable[[], dict[str, np.ndarray]]
    check: Callable[[list[np.ndarray]], None]

    def path(self) -> Path:
        return package_file(self.package, self.file)


MODELS = {
    "ocr-detector": RealModel(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", detector_inputs, detector_finds_lines
    ),
    "ocr-recogniser": RealModel(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", recogniser_inputs, recogniser_reads
    ),
    "file-types": RealModel("magika", "models/standard_v3_3/model.onnx", file_inputs, files_are_recognised),
    "notes": RealModel("basic_pitch", "saved_models/icassp_2022/nmp.onnx", notes_inputs, notes_are_heard),
    "voice": RealModel("silero_vad", "data/silero_vad_16k_sequence.onnx", speech_inputs, probabilities),
}
