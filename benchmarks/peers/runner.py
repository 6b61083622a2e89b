"""Tasks in fresh processes, each result under a time limit; versions of libraries and of the machine."""

from __future__ import annotations

import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
Result = dict[str, Any]


def run(task: dict[str, Any], limit: float) -> Iterator[Result]:
    """Results of a task, in the order of its keys.

    A key that gives none within ``limit`` seconds of processor time (so that other work on the machine does not count)
    is killed and recorded as such, and so is a process that dies; the keys after it go on in a new process.
    """
    left = list(task["keys"])
    while left:
        lines: queue.Queue[str | None] = queue.Queue()
        process = start(task | {"keys": left})
        reader = threading.Thread(target=drain, args=(process, lines), daemon=True)
        reader.start()
        try:
            while left:
                line = wait(lines, process, limit)
                if line:
                    yield json.loads(line)
                    left.pop(0)
                else:
                    dead = line is None
                    problem = f"the process ended with code {process.wait()}" if dead else f"more than {limit:g} s"
                    yield {"key": left.pop(0), "problem": problem}
                    break
        finally:
            process.kill()
            process.wait()
            reader.join()


def wait(lines: queue.Queue[str | None], process: subprocess.Popen[str], limit: float) -> str | None:
    """The next line of a process, None at its end, an empty text when it has used up its time."""
    began = processor_seconds(process.pid)
    while True:
        try:
            return lines.get(timeout=min(limit, 1.0))
        except queue.Empty:
            if processor_seconds(process.pid) - began > limit:
                return ""


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(task: dict[str, Any]) -> subprocess.Popen[str]:
    """A new process that works on a task."""
    paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    if task["kind"] in ("quality", "tabular"):
        # Where time is not what is measured: threads that wait for each other on a busy machine cost most of it.
        environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "peers.task", json.dumps(task)]
    # CatBoost leaves files where it runs.
    folder = tempfile.gettempdir() if task["kind"] == "tabular" else None
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=folder
    )


def drain(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    """Pass on the lines of a process, and None at their end."""
    if process.stdout is not None:
        with process.stdout as stdout:
            for line in stdout:
                lines.put(line)
    lines.put(None)


def library_version(name: str) -> str:
    """Installed version of a library, or an empty text."""
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return ""


def run_facts() -> dict[str, str]:
    """When and on what a run was made; the load tells whether the machine was idle."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "date": date.today().isoformat(),
        "processor": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "load when it began": f"{os.getloadavg()[0]:.1f}",
    }


def note_run(path: Path, part: str, facts: dict[str, str]) -> None:
    """Write down the facts of a run beside its table."""
    about = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(about | {part: facts}, indent=1) + "\n", encoding="utf-8")
