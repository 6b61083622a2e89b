"""What the package may not do: read pickles, evaluate text, reach for the network or start a shell."""

import ast
from pathlib import Path

import pytest

import mixnmatch

PACKAGE = Path(mixnmatch.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NETWORK = {"socket", "ssl", "urllib", "http", "requests", "httpx", "aiohttp", "urllib3", "ftplib", "smtplib", "xmlrpc"}
CODE = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "code", "codeop", "runpy"}


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


def called(tree: ast.AST) -> set[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {ast.unparse(call.func) for call in calls} | {
        f"{keyword.arg}={ast.unparse(keyword.value)}" for call in calls for keyword in call.keywords if keyword.arg
    }


def problems(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bad = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "shell=True", "allow_pickle=True"}
    bad |= {"pickle.load", "pickle.loads", "torch.load", "joblib.load", "weights_only=False", "np.fromregex"}
    return (imported(tree) & (NETWORK | CODE)) | (called(tree) & bad)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_dangerous(path):
    assert problems(path) == set()


@pytest.mark.parametrize(
    "text", ["import socket", "from urllib.request import urlopen", "import pickle", "eval('1')", "f(shell=True)"]
)
def test_the_audit_sees_what_it_looks_for(text, tmp_path):
    (tmp_path / "bad.py").write_text(text)
    assert problems(tmp_path / "bad.py")
