"""Top-label calibration error of published ImageNet classifiers, from files of their five largest probabilities.

    python benchmarks/imagenet_top_label.py FOLDER

Each FOLDER/MODEL.npz holds top5_probs (n x 5, descending), top5_classes and labels. The paper's Table 1 says 5.09% for
DenseNet-161 before calibration and 3.31% for VGG-19.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mixnmatch import calibration_error


def main() -> None:
    columns = ("bound", "kde", "kde authors", "kde-residual", "debiased", "histogram 15")
    print(f"{'model':<24}{'accuracy':>10}" + "".join(f"{name:>14}" for name in columns))
    for path in sorted(Path(sys.argv[1]).glob("*.npz")):
        file = np.load(path)
        confidence = file["top5_probs"][:, 0]
        correct = (file["top5_classes"][:, 0] == file["labels"]).astype(int)
        errors = [
            abs(correct.mean() - confidence.astype(np.float64).mean()),
            calibration_error(confidence, correct, estimator="kde", bandwidth="paper"),
            calibration_error(confidence, correct, estimator="kde", bandwidth="authors"),
            calibration_error(confidence, correct),
            calibration_error(confidence, correct, estimator="kde-residual-debiased"),
            calibration_error(confidence, correct, estimator="histogram", bins=15),
        ]
        print(f"{path.stem:<24}{correct.mean():10.4f}" + "".join(f"{100 * float(e):13.2f}%" for e in errors))


if __name__ == "__main__":
    main()
