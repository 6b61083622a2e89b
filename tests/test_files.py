"""Writing files: links, permissions, two writers at once, and folders."""

import os
import stat
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from mixnmatch import _files
from mixnmatch._files import atomic_folder, atomic_write, keep_existing
from mixnmatch._plain_files import NotAPlainFileError, read_plain_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, modes and signals of POSIX")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("later")
    atomic_write(tmp_path / "dangling", b"made")
    assert (tmp_path / "later").read_bytes() == b"made"
    assert names(tmp_path) == ["dangling", "later", "link", "real"]


def test_a_folder_behind_a_link_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with atomic_folder(tmp_path / "link") as folder:
        (folder / "a").write_text("1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "1"
    assert names(tmp_path) == ["link", "real"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_without_touching_the_umask(tmp_path, mask, monkeypatch):
    old = os.umask(mask)
    try:
        monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask is for the whole process"))
        atomic_write(tmp_path / "new", b"1")
        (tmp_path / "private").write_bytes(b"1")
        (tmp_path / "private").chmod(0o640)
        atomic_write(tmp_path / "private", b"2")
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        monkeypatch.undo()
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o666 & ~mask, "private": 0o640, "folder": 0o777 & ~mask}


@pytest.mark.parametrize("links", [True, False])
def test_of_two_writers_one_succeeds(tmp_path, monkeypatch, links):
    if not links:

        def refuse(*_args):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    path, together, outcomes, refused = tmp_path / "out", threading.Barrier(8), [], []

    def write(number: int) -> None:
        with keep_existing(path):
            together.wait()
            try:
                atomic_write(path, b"%d" % number)
                outcomes.append(number)
            except FileExistsError as error:
                refused.append(error.filename)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1
    assert refused == [str(path)] * 7
    assert path.read_bytes() == b"%d" % outcomes[0]
    assert names(tmp_path) == ["out"]


def test_of_two_folders_one_succeeds(tmp_path):
    path = tmp_path / "out"
    with keep_existing(path):
        with atomic_folder(path) as first:
            (first / "a").write_text("1")
        with pytest.raises(FileExistsError), atomic_folder(path) as second:
            (second / "a").write_text("2")
    assert (path / "a").read_text() == "1"
    assert names(tmp_path) == ["out"]


def test_a_full_disk_names_the_file(tmp_path):
    def full(_file):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        atomic_write(tmp_path / "out", full)
    assert caught.value.filename == str(tmp_path / "out")
    with pytest.raises(OSError, match="No space left") as caught, atomic_folder(tmp_path / "folder"):
        full(None)
    assert caught.value.filename == str(tmp_path / "folder")
    assert names(tmp_path) == []


def test_errors_about_other_files_keep_their_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        atomic_write(tmp_path / "out", lambda _file: (tmp_path / "missing").read_bytes())
    assert caught.value.filename == str(tmp_path / "missing")


def test_devices_are_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    atomic_write(pipe, b"through")
    reader.join()
    assert found == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_plain_files_only(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_plain_file(tmp_path / "a", 5) == b"12345"
    with pytest.raises(NotAPlainFileError, match="is too large: such a file has at most 4 bytes"):
        read_plain_file(tmp_path / "a", 4)
    tracemalloc.start()
    read_plain_file(tmp_path / "a", 1 << 32)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    handles = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(NotAPlainFileError, match=f"{tmp_path} is not a regular file"):
        read_plain_file(tmp_path, 5)
    assert not handles or len(os.listdir("/proc/self/fd")) == handles
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAPlainFileError, match="not a regular file"):
        read_plain_file(tmp_path / "pipe", 5)


KILLED = """
import os, signal, sys
from pathlib import Path
from mixnmatch._files import atomic_folder
real, calls = os.rename, [0]
def rename(*args, **settings):
    calls[0] += 1
    if calls[0] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **settings)
os.rename = rename
with atomic_folder(Path(sys.argv[1])) as folder:
    (folder / "new").write_text("2")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the exchange of two names is Linux's")
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_kill_between_renames_leaves_a_folder(tmp_path, call):
    """With two renames instead of one exchange, a kill between them would leave nothing under the name."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("1")
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out"), str(call)], check=False)
    assert names(tmp_path / "out") in (["old"], ["new"])


def test_without_the_exchange_the_folder_is_replaced_too(tmp_path, monkeypatch):
    monkeypatch.setattr(_files.ctypes, "CDLL", lambda *_args, **_settings: object())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("1")
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path / "out") == ["new"]
    assert names(tmp_path) == ["out"]
