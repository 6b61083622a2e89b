"""Use the installed package as a new user does: import, fit, save, load, and the command line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path


def main() -> None:
    """Run everything once; any error ends it."""
    import numpy as np

    import mixnmatch as mm

    assert mm.__version__ == sys.argv[1].removeprefix("v"), mm.__version__  # a tag has a v
    assert Path(sys.prefix) in Path(mm.__file__).parents, mm.__file__
    assert resources.files("mixnmatch").joinpath("py.typed").is_file()
    sample = mm.load_sample()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ets", "isotonic", "irm-ts", "beta-shrunk"):
            scores, labels = sample.logits_cal, sample.labels_cal
            if name == "beta-shrunk":  # two classes: the vector of the positive one
                scores, labels = scores[:, 3] - scores[:, 5], (labels == 3).astype(int)
            fitted = mm.calibrator(name, logits=True).fit(scores, labels)
            path = Path(folder, f"{name}.json")
            fitted.save(path)
            np.testing.assert_array_equal(mm.load(path).predict_proba(scores), fitted.predict_proba(scores))
        command = Path(sys.prefix, "bin", "mixnmatch")
        for arguments in (
            ["--version"],
            ["demo", "--methods", "identity,ts,ets", "--output", "out"],
            ["evaluate", "out/evaluation.npz", "--map", "out/map.json"],
            ["monitor", "out/map.json", "out/evaluation.npz", "--state", "state.json", "--html", "monitor.html"],
            ["playground", "-o", "playground.html"],
        ):
            subprocess.run([command, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for made in ("out/report.html", "out/map.json", "monitor.html", "playground.html"):
            assert Path(folder, made).stat().st_size > 500, made


if __name__ == "__main__":
    main()
