import os
import pickle

import numpy as np
import pytest

from mixnmatch.io.pickles import read_pickle


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
            with pytest.raises(pickle.UnpicklingError):
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
    with pytest.raises(pickle.UnpicklingError):
        read_pickle(path)


def test_the_helper_of_the_odd_pickles_is_right(tmp_path):
    (tmp_path / "p").write_bytes(array_pickle(b"u1", 8))
    assert read_pickle(tmp_path / "p").tobytes() == b"aaaaaaaa"
