import contextlib
import os
import pickle
import pickletools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixnmatch.experiments.pickles import _INSTRUCTIONS, PickleError, read_pickle


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_read_pickle_gives_back_arrays(tmp_path, protocol):
    value = (
        (np.arange(6.0).reshape(2, 3), np.array([1, 2], dtype=">i4")),
        {"f": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)), "s": np.float64(1.5)},
        [1, 2.5, None, True, "é", b"\xff"],
        np.zeros((0, 4)),
    )
    path = tmp_path / "p"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    (a, b), c, d, e = read_pickle(path)
    np.testing.assert_array_equal(a, value[0][0])
    np.testing.assert_array_equal(b, [1, 2])
    np.testing.assert_array_equal(c["f"], value[1]["f"])
    assert c["s"] == 1.5
    assert d == value[2]
    assert e.shape == (0, 4)
    assert a.flags.writeable


class Hostile:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_hostile_pickles_are_refused(tmp_path, protocol):
    path, trace = tmp_path / "p", tmp_path / "trace"
    for hostile in (Hostile(os.system, f"touch {trace}"), Hostile(eval, "1"), Hostile(getattr, "", "join")):
        for value in (hostile, {"data": [hostile]}, np.array([hostile], dtype=object)):
            path.write_bytes(pickle.dumps(value, protocol=protocol))
            with pytest.raises(PickleError):
                read_pickle(path)
    assert not trace.exists()


def array_pickle(dtype, length):
    """Eight bytes, said to be a vector of the given type and length."""
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I%d\ntcnumpy\ndtype\n(S'%s'\n"
        b"I0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'aaaaaaaa'\ntb." % (length, dtype)
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        pickle.dumps(np.array([None, "x"], dtype=object)),
        pickle.dumps(np.zeros(2, dtype=[("a", "f8")])),
        pickle.dumps({1, 2}),
        pickle.dumps(np.float64),
        # an array of pointers made of bytes, and lengths that do not fit the bytes
        array_pickle(b"O8", 1),
        array_pickle(b"u1", 999999999999),
        b"cnumpy\ndtype\n(S'u1'\ntR.",
        b"cnumpy\nndarray\n(I3\ntR.",
        b"c_codecs\nencode\n(S'abc'\nS'zlib'\ntR.",
        b"(lp0\ng0\na.",
    ],
)
def test_odd_pickles_are_refused(tmp_path, content):
    path = tmp_path / "p"
    path.write_bytes(content)
    with pytest.raises(PickleError):
        read_pickle(path)


def test_the_helper_of_the_odd_pickles_is_right(tmp_path):
    (tmp_path / "p").write_bytes(array_pickle(b"u1", 8))
    assert read_pickle(tmp_path / "p").tobytes() == b"aaaaaaaa"


def nested_frozensets(depth=60):
    """Each set holds the one before it in two ways: hashing the last takes 2 ** depth steps."""
    out = b"\x80\x04(\x91\x94"
    for k in range(depth):
        out += b"(h%c(h%c\x91\x91\x94" % (k, k)
    return out + b"."


ATTACKS = {
    "frozensets": nested_frozensets(),
    "set": b"\x80\x04\x8f(K\x01K\x02\x90.",
    "colliding integers": b"\x80\x02}("
    + b"".join(b"\x8a\x0a" + ((2**61 - 1) * k).to_bytes(10, "little") + b"N" for k in range(1, 20_000))
    + b"u.",
    "a tuple as a key": b"\x80\x02}K\x01K\x02\x86Ns.",
    "a number as a key": b"\x80\x02}K\x01Ns.",
    "state of a function": b"cnumpy.core.multiarray\n_reconstruct\n(N}V__doc__\nVchanged\nstb.",
    "state of a type": b"cnumpy\ndtype\n(N}V__doc__\nVchanged\nstb.",
    "state of an array as a table": b"cnumpy.core.multiarray\n_reconstruct\n(NNNtR}Va\nVb\nsb.",
    "new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "instance": b"(inumpy\nndarray\n.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"Pid\n.",
    "duplicate": b"]2.",
    "deep": b"]" * 100_000 + b"a" * 99_999 + b".",
    "marks": b"(" * 200_000 + b".",
    "large number": b"L" + b"9" * 1_000_000 + b"\n.",
    "no stop": b"N" * 1000,
    "values left over": b"NN.",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused_in_no_time(tmp_path, name):
    path = tmp_path / "p"
    path.write_bytes(ATTACKS[name])
    before = np.dtype.__doc__
    start = time.process_time()  # not the clock on the wall: other tests run beside this one
    with pytest.raises(PickleError, match="p"):
        read_pickle(path)
    assert time.process_time() - start < 5
    assert np.dtype.__doc__ == before


def test_instructions_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("mixnmatch.experiments.pickles.MOST_INSTRUCTIONS", 1000)
    (tmp_path / "p").write_bytes(b"(" + b"N" * 2000 + b"t.")
    with pytest.raises(PickleError, match="more than 1000 instructions"):
        read_pickle(tmp_path / "p")


def test_every_admitted_instruction_is_one_that_python_writes():
    """The list holds no instruction that makes objects, calls by other names or builds sets."""
    known = {opcode.code: opcode.name for opcode in pickletools.opcodes}
    names = {known[chr(code)] for code in _INSTRUCTIONS}
    refused = {"FROZENSET", "ADDITEMS", "EMPTY_SET", "NEWOBJ", "NEWOBJ_EX", "INST", "OBJ", "EXT1", "EXT2", "EXT4"}
    refused |= {"PERSID", "BINPERSID", "DUP", "POP", "POP_MARK", "NEXT_BUFFER", "READONLY_BUFFER", "STOP"}
    assert names | refused == set(known.values())
    assert not names & refused


@given(plain=st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
), protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))  # fmt: skip
def test_what_python_writes_comes_back(tmp_path_factory, plain, protocol):
    path = tmp_path_factory.mktemp("pickles") / "p"
    path.write_bytes(pickle.dumps(plain, protocol))
    assert read_pickle(path) == plain


@given(st.lists(st.sampled_from([bytes([code]) for code in _INSTRUCTIONS]) | st.binary(max_size=4), max_size=60))
def test_any_sequence_of_instructions_is_read_or_refused(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("pickles") / "p"
    path.write_bytes(b"".join(parts) + b".")
    with contextlib.suppress(PickleError):
        read_pickle(path)
