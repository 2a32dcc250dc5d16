"""Word vectors in the text format of GloVe and fastText: a word and its numbers a line, with spaces between.

Pennington et al., EMNLP 2014; files such as `glove.840B.300d.txt` are at https://nlp.stanford.edu/projects/glove.
A file is the user's and not a data set of ours: it has no checksum, and is read wherever it lies.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from amphw.data.cache import DataError

_OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


def load_vectors(path: str, words: Collection[str], width: int) -> dict[str, np.ndarray]:
    """The vectors, float32 [width], of those `words` that a file (plain, .gz, .xz or .bz2) has.

    A word is looked for as it is, then in lower case, brackets also as themselves (`-LRB-` is `(`). A first
    line of two numbers, as fastText writes one, is passed over. Raises DataError naming file and line.
    """
    wanted = {form for word in words for form in _forms(word)}
    found: dict[str, np.ndarray] = {}
    try:
        with _open(Path(path).expanduser()) as lines:
            for number, line in enumerate(lines, start=1):
                # A word may hold spaces, as some of GloVe's do; the numbers are the last ones.
                parts = line.rstrip().split(" ")
                if number == 1 and len(parts) == 2:
                    continue
                word = " ".join(parts[:-width])
                if len(parts) <= width:
                    raise DataError(
                        f"{path}, line {number}: a word and {len(parts) - 1} numbers, expected {width}; set "
                        "the model's `embedding` to the width of the file, or take another file."
                    )
                if word in wanted and word not in found:
                    found[word] = _numbers(path, number, parts[-width:])
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"the word vectors of {path} cannot be read: {error}.") from error
    if not found:
        raise DataError(
            f"{path} has no vector of any of the {len(words)} words; is it a file of word vectors?"
        )
    of_word = {word: [found[form] for form in _forms(word) if form in found] for word in words}
    return {word: vectors[0] for word, vectors in of_word.items() if vectors}


def _forms(word: str) -> list[str]:
    plain = _BRACKETS.get(word, word)
    return [word, plain, plain.lower()]


def _open(path: Path) -> IO[str]:
    opener = _OPENERS.get(path.suffix)
    if opener is None:
        return path.open(encoding="utf-8", newline="\n")
    opened: IO[str] = opener(path, "rt", encoding="utf-8", newline="\n")  # type: ignore[operator]
    return opened


def _numbers(path: str, line: int, texts: list[str]) -> np.ndarray:
    try:
        vector = np.array(texts, np.float32)
    except ValueError as error:
        raise DataError(f"{path}, line {line}: {error}.") from None
    if not np.isfinite(vector).all():
        raise DataError(f"{path}, line {line}: a number is not finite.")
    return vector
