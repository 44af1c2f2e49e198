"""Folders of a pack that are stored as archives, and unpacked next to them when first used."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

PRESET = 1  # nearly as small as the default, in a tenth of the time


def _archive(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.tar.xz")


def fold(folder: Path) -> None:
    """Replaces `folder` by an archive."""
    with tarfile.open(_archive(folder), "w:xz", preset=PRESET) as tar:
        tar.add(folder, arcname=folder.name)
    shutil.rmtree(folder)


def unfold(folder: Path) -> None:
    """Unpacks the archive of `folder`, if there is one and the folder does not exist yet. Several processes may do so at once."""
    if folder.exists() or not _archive(folder).exists():
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfolding-") as temporary:
        with tarfile.open(_archive(folder)) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            tar.extractall(temporary)
        try:
            Path(temporary, folder.name).rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise
