"""Attacks on the readers of files: ``python -m tests.fuzz.files KIND SEED COUNT`` reads broken files in little memory.

Every file is a sound one that was changed: bytes, lengths and numbers in the raw file, or nodes of the JSON tree with
the checksum made right again. A reader may refuse it in words or take it; then what it holds must be sound.
"""

import base64
import copy
import gzip
import io
import json
import os
import pickle
import resource
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixnmatch as mm
from mixnmatch._documents import checksum
from mixnmatch._engine.errors import InputWarning
from mixnmatch.experiments.pickles import PickleError, read_pickle
from mixnmatch.io import FileError, read_table
from paper_networks.images import read_idx
from tests.conftest import make_problem, softmax
from tests.fuzz.running import check_distribution

MEMORY = 1 << 30  # bytes beyond what the process has when it starts
LOGITS, Y = make_problem(20, 3, seed=3)
P = softmax(LOGITS)
# Rows that a map read from a file is tried on: ordinary, saturated, tied and exact ones.
PROBES = np.concatenate([P, softmax(30 * LOGITS), np.eye(3), np.full((1, 3), 1 / 3), [[0.5, 0.5, 0.0]]])
PROBES_LOGITS = np.concatenate([LOGITS, 100 * LOGITS, 1e6 * np.eye(3), np.zeros((1, 3))])
MAPS = tuple(line.name for line in mm.calibrators())
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**400,
    1e308,
    -1e-320,
    "",
    "inf",
    "nan",
    "é\ud800",
    "A" * 10_000,
    [],
    [0] * 1000,
    {},
    {"list": []},
    {"float": "nan"},
    {"float": "1e9"},
    {"text": ["a", 1]},
    {"text": "abc"},
    {"unfitted": "Isotonic", "params": {}},
    {"array": {"dtype": "<f8", "shape": [10**12], "base64": ""}},
    {"array": {"dtype": "<f8", "shape": [3], "values": [1, 2, 3]}},
    {"array": {"dtype": "|O", "shape": [1], "values": [1]}},
    {"array": {"dtype": "<f8", "shape": [2, 0], "values": []}},
    {"array": {"dtype": "<f8", "shape": [1], "base64": base64.b64encode(struct.pack("<d", np.inf)).decode()}},
    {"type": "Identity", "params": {}, "fitted": {}},
    {"type": "object", "params": {}, "fitted": {}},
)


def corrupted(raw: bytes, rng: np.random.Generator) -> bytes:
    """A file with some bytes changed, cut, repeated or overwritten by numbers that promise much."""
    data = bytearray(raw)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data) + 1))
        kind = rng.integers(7)
        if kind == 0 and data:
            data[at % len(data)] = int(rng.integers(256))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + int(rng.integers(1, 40))]
        elif kind == 3:
            data[at:at] = data[: int(rng.integers(1, 100))]
        elif kind == 4:
            data[at : at + 4] = struct.pack("<I", int(rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1])))
        elif kind == 5:
            data[at : at + 8] = struct.pack("<Q", int(rng.choice([0, 2**31, 2**40, 2**63 - 1])))
        else:
            data[at:at] = rng.bytes(int(rng.integers(1, 30)))
    return bytes(data)


def changed_tree(document: dict[str, Any], rng: np.random.Generator) -> bytes:
    """A map file with a node of its tree replaced, and a checksum that fits."""
    for _ in range(rng.integers(1, 3)):
        node: Any = document
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = keys[rng.integers(len(keys))]
            below = node[key]
            if not isinstance(below, dict | list) or not below or rng.random() < 0.15:
                kind = rng.integers(4)
                if kind == 0:
                    del node[key]
                elif kind == 1:
                    node[key] = {"list": [below] * 3} if rng.random() < 0.5 else [below, below]
                else:
                    node[key] = copy.deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
                break
            node = below
    document.pop("sha256", None)
    document["sha256"] = checksum(document)
    return json.dumps(document).encode()


def changed_numbers(document: dict[str, Any], rng: np.random.Generator) -> bytes:
    """A map file with some numbers of its arrays, or single numbers, replaced by others, and a checksum that fits."""
    leaves: list[tuple[Any, Any]] = []
    _numbers(document["map"], leaves)
    for _ in range(rng.integers(1, 4)):
        node, key = leaves[rng.integers(len(leaves))]
        if key == "base64":
            flat = np.frombuffer(base64.b64decode(node[key]), node["dtype"]).copy()
            flat[rng.integers(len(flat))] = _other_number(float(flat[0]), rng) if node["dtype"] == "<f8" else 7
            node[key] = base64.b64encode(flat.tobytes()).decode("ascii")
        else:
            node[key] = (
                _other_number(float(node[key]), rng) if isinstance(node[key], float) else int(rng.integers(-3, 9))
            )
    document.pop("sha256", None)
    document["sha256"] = checksum(document)
    return json.dumps(document).encode()


def _numbers(node: Any, leaves: list[tuple[Any, Any]]) -> None:
    """All places of a tree that hold numbers, those in base64 included."""
    for key, item in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(item, dict | list):
            _numbers(item, leaves)
        elif key == "base64" or (isinstance(item, int | float) and not isinstance(item, bool)):
            leaves.append((node, key))


def _other_number(value: float, rng: np.random.Generator) -> float:
    choices = (-value, value + 1, 1e3 * value, 1 - value, -1e-3, 1.5, 1e6, -1e12, 1e200, 0.0, 1e-300, value / 2)
    return float(choices[rng.integers(len(choices))])


def sound_maps() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.json"
        made = []
        for name in MAPS:
            fitted = mm.calibrator(name, logits=name == "ts").fit(LOGITS if name == "ts" else P, Y)
            adapted = [fitted.adapt(priors=[0.2, 0.3, 0.5])] if name in ("ts", "sms", "irova") else []
            for one in (fitted, *adapted):
                one.save(path)
                made.append(path.read_bytes())
    return made


def read_map(path: Path) -> None:
    fitted = mm.load(path)
    if fitted.n_classes_ == 3:
        given = PROBES_LOGITS if fitted._input_settings()["logits"] else PROBES
        # Exact ties that are rounded to float32 are for the tests of the maps.
        for scores in (given, given[:-2].astype(np.float32)):
            check_distribution(fitted.predict_proba(scores), 3)


def deep_and_large() -> list[bytes]:
    """Map files that no change of a sound one gives."""
    head = b'{"format": "mixnmatch-map", "version": 1, "map": '
    deep = head + b'{"list": [' * 50_000 + b"]}" * 50_000 + b"}"
    return [deep, b"[" * 100_000, head + b"1" * 100_000 + b"}", head + b"1e999}", b"\xff\xfe", b'"' + b"a" * 10**6]


def sound_tables(ending: str) -> list[bytes]:
    if ending == ".csv.gz":
        return [gzip.compress(raw) for raw in sound_tables(".csv")]
    if ending == ".csv":
        rows = [",".join(f"{v:.6f}" for v in row) + f",{label}" for row, label in zip(P, Y, strict=True)]
        plain = "\n".join(["a,b,c,label", *rows])
        others = ["\n".join(["a,label", '"0.5","x,1"', "0.25,y"]), plain.replace(",", ";"), plain.replace(",", "\t")]
        return [text.encode() for text in (plain, *others)]
    if ending in (".npz", ".npy"):
        return [
            _written(lambda file: np.savez(file, probs=P, labels=Y, weights=np.ones(20)), ending, P),
            _written(lambda file: np.savez_compressed(file, probs=P, labels=Y), ending, Y),
        ]
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {**{name: P[:, k] for k, name in enumerate("abc")}, "label": pa.array(Y).cast(pa.string()).dictionary_encode()}
    )
    made = []
    for compression in ("none", "snappy", "zstd"):
        file = io.BytesIO()
        pq.write_table(table, file, compression=compression)
        made.append(file.getvalue())
    return made


def _written(savez: Callable[[Any], None], ending: str, array: Any) -> bytes:
    file = io.BytesIO()
    savez(file) if ending == ".npz" else np.save(file, array)
    return file.getvalue()


def read_scores_file(path: Path) -> None:
    table = read_table(path, need_labels=path.suffix != ".npy", logits=None)
    assert table.scores.ndim in (1, 2)
    try:
        mm.maps.Identity(classes=table.classes).fit(table.scores, table.labels if table.labels is not None else Y)
    except (ValueError, TypeError):
        return


def bombs(ending: str) -> list[bytes]:
    """Files that are small and promise to be large, or are more than they seem."""
    if ending in (".csv", ".csv.gz"):
        texts = [
            b"a,b,label\n0.5,0.5," + b"x" * 10**6 + b"\n",
            b"a,b,label\n0.5,0.5," + b"x" * 131_000 + b"\n" + b"0.5,0.5,a\n" * 8000,
            b"a,b,label\n" + b"0" * 50_000_000,
            b"a,b," + b'"' * 10**6 + b"\n",
            b";" * 10**6 + b"\n",
        ]
        return texts if ending == ".csv" else [gzip.compress(text) for text in texts]
    if ending == ".parquet":
        return [_one_long_text(5000, 150_000)]
    if ending != ".npz":
        return []
    out = [_packed(method, 10**7) for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)]
    for size in (10**9, 10**11):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (size, 3)})
            archive.writestr("probs.npy", head.getvalue() + bytes(10**6))
            archive.writestr("labels.npy", _written(lambda file: None, ".npy", Y))
        out.append(file.getvalue())
    return out


def _packed(method: int, size: int) -> bytes:
    """An archive of zeros, packed by a method that packs them into next to nothing."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("probs.npy", _written(lambda file: None, ".npy", np.zeros((size // 24, 3))))
        archive.writestr("labels.npy", _written(lambda file: None, ".npy", np.zeros(size // 24, int)))
    return file.getvalue()


def _one_long_text(length: int, rows: int) -> bytes:
    """A parquet file whose labels are one long text, kept once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * length]))
    file = io.BytesIO()
    pq.write_table(pa.table({"a": np.full(rows, 0.5), "b": np.full(rows, 0.5), "label": once}), file)
    return file.getvalue()


def sound_pickles() -> list[bytes]:
    content = {"data": P.astype(np.float32), b"labels": Y.tolist(), "names": ("a", "b"), "n": np.float64(3)}
    return [pickle.dumps(content, protocol) for protocol in range(6)]


def evil_pickles() -> list[bytes]:
    """Pickles that would run code, or grow without end."""
    marker = "raise SystemExit('code of a file was run')"
    call = b"cbuiltins\nexec\n(V" + marker.encode() + b"\ntR."
    bomb = b"]" + b"".join(b"q%c" % k + b"(" + b"h%c" % k * 50 + b"l" for k in range(40)) + b"."
    tuples = b")q\x00" + b"".join(b"h%ch%c\x86q%c" % (k, k, k + 1) for k in range(60)) + b"}h\x3cNs."
    text = b"X" + struct.pack("<I", 10**6) + b"a" * 10**6 + b"q\x01"
    grow = text + b"c_codecs\nencode\nq\x02(" + b"h\x02h\x01Vlatin1\n\x86R" * 5000 + b"l."
    cell = b"Nr" + struct.pack("<I", 2**28) + b"."
    array = b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b"abc."
    frozen = b"(\x91\x94" + b"".join(b"(h%c(h%c\x91\x91\x94" % (k, k) for k in range(60)) + b"."
    collide = b"".join(b"\x8a\x0a" + ((2**61 - 1) * k).to_bytes(10, "little") + b"N" for k in range(1, 20_000))
    return [
        frozen,
        b"}(" + collide + b"u.",
        b"cnumpy.core.multiarray\n_reconstruct\n(N}V__doc__\nVchanged\nstb.",
        b"\x8f(K\x01K\x02\x90.",
        tuples,
        grow,
        cell,
        array,
        call,
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        b"cos\nsystem\n(Vexit 1\ntR.",
        bomb,
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
        b"X" + struct.pack("<I", 2**32 - 1) + b".",
        b"T" + struct.pack("<i", -1) + b".",
        b"r" + struct.pack("<I", 2**31) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**50) + b".",
        b"(" * 10**6 + b".",
        b"]" + b"\x94h\x00a" * 3 + b".",
        b"\x82\x01.",
        b"Pid\n.",
        b"(inumpy\nndarray\n.",
        b"cnumpy\ndtype\n(Vf8\ntR}b.",
        b"cnumpy\ndtype\n(Vf999999999\ntR.",
    ]


def read_pickled(path: Path) -> None:
    read_pickle(path)


def sound_idx(ending: str) -> list[bytes]:
    raw = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + bytes(24)
    return [gzip.compress(raw) if ending == ".gz" else raw]


def endless_idx(ending: str) -> list[bytes]:
    raw = b"\0\0\x08\x01" + struct.pack(">I", 2**32 - 1) + bytes(2 * 10**6)
    return [gzip.compress(raw) if ending == ".gz" else raw, b"\0\0\x08\xff" + b"\xff" * 1020]


def read_images(path: Path) -> None:
    read_idx(path)


def attack(kind: str, seed: int, count: int, folder: Path) -> int:
    """Read ``count`` corrupted files of a kind and return how many of them were taken; fail if a reader misbehaves."""
    rng = np.random.default_rng([seed, sum(kind.encode())])
    sound, extra, read, refusals, ending = ATTACKS[kind]()
    path = folder / f"attacked{ending}"
    taken = 0
    for number in range(count):
        if number < len(extra):
            raw = extra[number]
        elif kind in CHANGES:
            raw = CHANGES[kind](json.loads(sound[rng.integers(len(sound))]), rng)
        else:
            raw = corrupted(sound[rng.integers(len(sound))], rng)
        if number == len(extra) and sys.platform != "win32":
            _refuse_special(path, read, refusals)
        path.write_bytes(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", InputWarning)  # of scores that changed a little
            try:
                read(path)
                taken += 1
            except refusals as error:
                if not str(error).strip():
                    raise
            except Exception:
                path.rename(Path(tempfile.gettempdir()) / f"attack-{kind}-{seed}-{number}{ending}")
                raise
    return taken


def _refuse_special(path: Path, read: Callable[[Path], None], refusals: tuple[type[Exception], ...]) -> None:
    """A pipe that nobody writes to, a device without end and a folder are refused at once, under any name."""
    path.unlink(missing_ok=True)
    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"), path.mkdir):
        make()
        with pytest.raises((*refusals, OSError), match=r"\S"):
            read(path)
        path.rmdir() if path.is_dir() else path.unlink()


CHANGES = {"tree": changed_tree, "numbers": changed_numbers}
Attack = tuple[list[bytes], list[bytes], Callable[[Path], None], tuple[type[Exception], ...], str]
ATTACKS: dict[str, Callable[[], Attack]] = {
    "tree": lambda: (sound_maps(), deep_and_large(), read_map, (mm.persistence.MapFileError,), ".json"),
    "numbers": lambda: (sound_maps(), [], read_map, (mm.persistence.MapFileError,), ".json"),
    "map": lambda: (sound_maps(), [], read_map, (mm.persistence.MapFileError,), ".json"),
    "pickle": lambda: (sound_pickles(), evil_pickles(), read_pickled, (PickleError,), ".pkl"),
    **{
        f"idx{ending}": lambda ending=ending: (
            sound_idx(ending),
            endless_idx(ending),
            read_images,
            (ValueError,),
            ending,
        )
        for ending in ("", ".gz")
    },
    **{
        f"table{ending}": lambda ending=ending: (
            sound_tables(ending),
            bombs(ending),
            read_scores_file,
            (FileError,),
            ending,
        )
        for ending in (".csv", ".csv.gz", ".npz", ".npy", ".parquet")
    },
}

if __name__ == "__main__":
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    ATTACKS[sys.argv[1]]()  # what is needed to make files is imported before memory gets scarce
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with tempfile.TemporaryDirectory() as work:
        print(attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(work)))
