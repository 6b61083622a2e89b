"""Train a small language model on the docstrings of installed packages, and write its logits for the next word.

    python recipes/language_model.py OUTPUT.npz [--words 1000] [--epochs 4] [--tokens 800000]

The classes are the most frequent words, one of them "another word": real outputs with many classes, of which two thirds
occur rarely. The text is what the installed packages bring (NumPy, SciPy, scikit-learn, pandas, Dask, torch and the
standard library), so it depends on their versions; OUTPUT says which they were. Modules are cut into three parts by a
hash of their names: most are for training, a tenth each for calibration and evaluation. So no document is in two parts.
Rows of one module depend on each other: the arrays ``clusters_cal`` and ``clusters_eval`` number the modules.

The model reads eight words, embeds each in 64 numbers and has one hidden layer. It sees few words several times, and
becomes overconfident as larger models do. It takes about ten minutes on one core for 1000 words. Needs torch.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

PACKAGES = ("numpy", "scipy", "sklearn", "pandas", "dask", "distributed", "torch", "matplotlib")
TOKEN = re.compile(r"[a-z]+|[0-9]+|[.,;:()=]")
CONTEXT, EMBEDDED, HIDDEN, BATCH = 8, 64, 256, 512
# Tenths of the modules, by a hash of their names.
CALIBRATION, EVALUATION = 0, 1


def modules() -> Iterator[Path]:
    """Files of the packages and of the standard library, in a fixed order."""
    packages = [Path(sysconfig.get_paths()["purelib"], name) for name in PACKAGES]
    for folder in (Path(sysconfig.get_paths()["stdlib"]), *packages):
        for path in sorted(folder.rglob("*.py")):
            if "site-packages" not in path.relative_to(folder).parts and "tests" not in path.parts:
                yield path


def words(path: Path) -> list[str]:
    """Words of all docstrings of a module."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    return TOKEN.findall("\n".join(texts).lower())


def part(path: Path) -> int:
    """Which tenth of the modules one is in."""
    return int(sha256("/".join(path.parts[-3:]).encode()).hexdigest(), 16) % 10


def windows(codes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All contexts of a document, and the words that follow."""
    view = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    return view[:, :-1], view[:, -1]


def network(n_words: int) -> nn.Module:
    """Embeddings of the words of a context, a hidden layer, and a logit for each word."""
    return nn.Sequential(
        nn.Embedding(n_words, EMBEDDED), nn.Flatten(), nn.Linear(CONTEXT * EMBEDDED, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, n_words),
    )  # fmt: skip


def train(x: torch.Tensor, y: torch.Tensor, n_words: int, epochs: int) -> nn.Module:
    """The network, by Adam with a falling rate."""
    model, steps = network(n_words), epochs * (len(x) // BATCH)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(epochs):
        losses = []
        for rows in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1} of {epochs}: training log loss {np.mean(losses):.3f}", flush=True)
    return model


def predicted(model: nn.Module, x: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Logits of the next word."""
    with torch.no_grad():
        return np.concatenate([model(torch.from_numpy(part.copy())).numpy() for part in np.array_split(x, 50)])


def main(arguments: list[str] | None = None) -> None:
    """Read, train, predict and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--words", type=int, default=1000, help="number of classes")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=800_000, help="contexts to train on")
    parser.add_argument("--rows", type=int, default=25_000, help="rows for calibration, and for evaluation")
    asked = parser.parse_args(arguments)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    documents = [(part(path), found) for path in modules() if len(found := words(path)) > CONTEXT]
    counts = Counter(word for tenth, found in documents if tenth > EVALUATION for word in found)
    code = {word: k for k, (word, _) in enumerate(counts.most_common(asked.words - 1))}
    parts: dict[str, list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]] = {"train": [], "cal": [], "eval": []}
    for tenth, found in documents:
        codes = np.array([code.get(word, asked.words - 1) for word in found])
        parts[{CALIBRATION: "cal", EVALUATION: "eval"}.get(tenth, "train")].append(windows(codes))
    x, y = (np.concatenate([pair[k] for pair in parts["train"]]) for k in (0, 1))
    chosen = rng.permutation(len(x))[: asked.tokens]
    print(f"{len(documents)} modules, {len(x)} contexts to train on, of which {len(chosen)} are used", flush=True)
    model = train(torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen]), asked.words, asked.epochs)
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for name in ("cal", "eval"):
        x, y = (np.concatenate([pair[k] for pair in parts[name]]) for k in (0, 1))
        clusters = np.repeat(np.arange(len(parts[name])), [len(pair[1]) for pair in parts[name]])
        rows = np.sort(rng.permutation(len(x))[: asked.rows])
        logits = predicted(model, x[rows])
        arrays |= {f"logits_{name}": logits, f"labels_{name}": y[rows], f"clusters_{name}": clusters[rows]}
        print(f"{name}: {len(rows)} of {len(x)} rows, accuracy {(logits.argmax(1) == y[rows]).mean():.3f}", flush=True)
    known = [name for name in PACKAGES if name != "sklearn"] + ["scikit-learn"]
    versions = [f"Python {sys.version.split()[0]}", *(f"{name} {importlib.metadata.version(name)}" for name in known)]
    np.savez(asked.output, **arrays, versions=np.array(versions))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
