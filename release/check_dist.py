"""Check the files of a release: what is in them, and that both work in an empty environment.

Run by ``make dist``: ``python release/check_dist.py dist``. The wheel and the sdist are installed side by side, each
into an environment of its own with nothing but what they ask for, and ``release/smoke.py`` runs there.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Files without which the package is not complete.
NEEDED = (
    "mixnmatch/py.typed",
    "mixnmatch/__init__.pyi",
    "mixnmatch/selection/__init__.pyi",
    "mixnmatch/data/sample.npz",
    "mixnmatch/assets/closed_page.html",
    "mixnmatch/assets/result.html",
    "mixnmatch/report/assets/report.css",
    "mixnmatch/report/assets/report.js",
    "mixnmatch/report/assets/report.html",
    "mixnmatch/report/assets/monitor.html",
    "mixnmatch/playground/assets/page.js",
    "mixnmatch/playground/assets/playground.html",
)
RELATIVE = re.compile(r"\]\((?!https?:|mailto:|#)[^)]*\)")


def main() -> None:
    """Check all files of a folder."""
    folder = Path(sys.argv[1])
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/mixnmatch/_version.py").read_text())[1]
    sdist = folder / f"mixnmatch-{version}.tar.gz"
    # With compiled kernels the wheel is for one platform, without a compiler for all.
    wheels = list(folder.glob(f"mixnmatch-{version}-*.whl"))
    found = sorted(path.name for path in folder.iterdir())
    if len(wheels) != 1 or found != sorted([wheels[0].name, sdist.name]):
        sys.exit(f"{folder} should hold one wheel and {sdist.name}, but holds {', '.join(found)}")
    [wheel] = wheels
    check_contents(wheel, sdist)
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(try_out, (wheel, sdist), (version, version)):
            print(line)


def check_contents(wheel: Path, sdist: Path) -> None:
    """Look for files that are missing or should not be there, and for links that lead nowhere."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [about] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(about))
    missing = [name for name in NEEDED if name not in names]
    stray = [name for name in names if not name.startswith(("mixnmatch/", "mixnmatch-")) or "__pycache__" in name]
    if missing or stray:
        sys.exit(f"{wheel.name}: missing {missing}, not expected {stray}")
    # Code blocks may hold what looks like a link.
    description = re.sub(r"^```.*?^```$", "", str(metadata.get_payload()), flags=re.MULTILINE | re.DOTALL)
    links = RELATIVE.findall(description)
    if links:
        sys.exit(f"{wheel.name}: the long description has relative links: {links}")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    lacking = [
        name
        for name in ("pyproject.toml", "hatch_build.py", "hatch_metadata.py", "LICENSE", "CHANGELOG.md")
        if name not in inside
    ]
    if lacking or any(name.startswith((".git/", ".venv", "site/", "out/", "dist/")) for name in inside):
        sys.exit(f"{sdist.name}: missing {lacking}, or files that do not belong in it")


def try_out(path: Path, version: str) -> str:
    """Install a file into an empty environment and use the package there."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "env", "bin", "python")
        # Isolated mode (-I): nothing is imported from the checkout.
        steps = (
            [sys.executable, "-m", "venv", str(Path(folder, "env"))],
            [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", str(path.resolve())],
            [str(python), "-m", "pip", "--disable-pip-version-check", "check"],
            [str(python), "-I", str(ROOT / "release" / "smoke.py"), version],
        )
        for step in steps:
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{path.name}: {' '.join(step)} failed\n{done.stdout}\n{done.stderr}")
    return f"{path.name}: installed and tried in an empty environment"


if __name__ == "__main__":
    main()
