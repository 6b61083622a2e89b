"""Damaged files never crash or hang a reader, run nothing, and take no more memory than they are worth."""

import secrets
import subprocess
import sys

import pytest

from tests.fuzz.files import ATTACKS, attack
from tests.fuzz.running import TOTAL, ran

SHARE = 0.4 / len(ATTACKS)


@pytest.mark.parametrize("kind", ATTACKS)
def test_damaged_files(kind, tmp_path):
    if "parquet" in kind:
        pytest.importorskip("pyarrow")
    if not TOTAL:
        attack(kind, 0, 60, tmp_path)
        return
    count, seed = round(SHARE * TOTAL), secrets.randbits(32)
    command = [sys.executable, "-m", "tests.fuzz.files", kind, str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600 + count)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    ran[f"files: {kind}"] = count
