"""The whole reproduction: run what is missing, then write everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mixnmatch._engine.steps import Progress
from mixnmatch.experiments.reproduce.run import Failures, Plan, collect, run
from mixnmatch.experiments.reproduce.study import run_study, study_blocks
from mixnmatch.experiments.reproduce.write import write_all
from mixnmatch.io import FileError

__all__ = ["Outcome", "reproduce"]

CACHE = "cache"
PAGE = "index.md"
STUDY = "synthetic"
STUDY_STEPS = 78  # messages of the study, for the bar


@dataclass(frozen=True)
class Outcome:
    """What a reproduction did: units that were run now, failures by row and method, and files that were written."""

    units: int
    failures: Failures
    files: tuple[Path, ...]


def reproduce(
    plan: Plan,
    folder: Path,
    *,
    jobs: int = 1,
    backend: str | None = None,
    cache: Path | None = None,
    study: Path | None = None,
    study_repetitions: int = 1000,
    compute: bool = True,
    force: bool = False,
    command: str = "",
    progress: Callable[[str], Progress | None] | None = None,
) -> Outcome:
    """Make the paper's tables and figures.

    Parameters
    ----------
    plan : Plan
        What to run.
    folder : Path
        Where everything goes.
    jobs : int
        Processes. The numbers do not depend on it.
    backend : str, optional
        Backend of joblib, such as "loky", "dask" or "ray".
    cache : Path, optional
        Where results are kept, each as it is found: a run that was stopped goes on from them, and one with more splits
        or methods adds to them. By default a folder ``cache`` in ``folder``.
    study : Path, optional
        Where the synthetic study is, or goes. By default a folder ``synthetic`` in ``folder``.
    study_repetitions : int
        Repetitions of the synthetic study.
    compute : bool
        Whether to run what is missing; otherwise the page is made of what is there.
    force : bool
        Whether a folder may be used that holds other files.
    command : str
        What was typed, for the page.
    progress : callable, optional
        Gets the name of a stage, and gives a function ``(done, all, what)`` or None.
    """
    _check_folder(folder, force=force)
    cache, study = cache or folder / CACHE, study or folder / STUDY
    units = 0
    with joblib_backend(backend), _folders(folder, cache):
        if compute:
            units = run(plan, cache, jobs=jobs, progress=progress)
        if compute and "synthetic" in plan.parts:
            tell = None if progress is None else progress("synthetic study")
            steps = count(1)
            message = None if tell is None else (lambda text: tell(next(steps), STUDY_STEPS, text))
            run_study(study, repetitions=study_repetitions, seed=plan.seed, jobs=jobs, progress=message)
    records, failed = collect(plan, cache)
    blocks = study_blocks(study, folder) if "synthetic" in plan.parts else []
    files = write_all(folder, plan, records, command=command, failures=failed, study=blocks)
    return Outcome(units, failed, tuple(files))


@contextmanager
def joblib_backend(name: str | None) -> Iterator[None]:
    """Run what goes through joblib on another of its backends."""
    from joblib import parallel_config

    with ExitStack() as stack:
        if name == "dask":
            _join_dask(stack)
        if name == "ray":
            _register_ray()
        if name is not None:
            stack.enter_context(parallel_config(backend=name))
        yield


def _join_dask(stack: ExitStack) -> None:
    """Make sure of a client: the one there is, or one of the scheduler that DASK_SCHEDULER_ADDRESS names."""
    try:
        from distributed import Client, get_client
    except ImportError as error:
        msg = 'the backend dask needs Dask: pip install "mixnmatch[dask]"'
        raise ImportError(msg) from error
    try:
        get_client()
    except ValueError:  # without an address it starts workers of its own
        stack.enter_context(Client())


def _register_ray() -> None:
    """Tell joblib of Ray."""
    try:
        from ray.util.joblib import register_ray
    except ImportError as error:
        msg = "the backend ray needs Ray: pip install ray"
        raise ImportError(msg) from error
    register_ray()


@contextmanager
def _folders(*folders: Path) -> Iterator[None]:
    """Make folders; those that are still empty when something goes wrong are taken away again."""
    created = [folder for folder in folders if not folder.exists()]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in reversed(created):
            with suppress(OSError):  # there are results in it
                folder.rmdir()
        raise


def _check_folder(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise FileError(folder, "is a file; name a folder")
    ours = (folder / CACHE).is_dir() or (folder / PAGE).exists()
    if folder.is_dir() and any(folder.iterdir()) and not ours and not force:
        raise FileError(folder, "holds other files; pass --force to write there all the same")
