"""Keys of Ed25519 as PEM, of tests 2 and 3 of RFC 8032, section 7.1."""

from __future__ import annotations

from pathlib import Path

PEMS = {
    "private.pem": ("PRIVATE", "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7"),
    "public.pem": ("PUBLIC", "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw="),
    "other.pem": ("PRIVATE", "MC4CAQAwBQYDK2VwBCIEIMWqjfQ/n4N77bdELzHct7Fm04U1B28JS4XOOi4LRFj3"),
    "other.pub": ("PUBLIC", "MCowBQYDK2VwAyEA/FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU="),
}
FINGERPRINT = "deb2ded39dc26fce0e6085b6fc34bf6b5941913bbfe2ea614113cff9e004c170"  # of public.pem
OTHER_FINGERPRINT = "8d39ba50abe50f77b6bb8ae7b6927aff7ffbeba35ad2837c0e51e82bcbcc60d5"  # of other.pub


def write_keys(folder: Path) -> Path:
    for name, (kind, text) in PEMS.items():
        (folder / name).write_text(f"-----BEGIN {kind} KEY-----\n{text}\n-----END {kind} KEY-----\n")
    return folder
