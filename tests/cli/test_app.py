"""The group: help, completion, lazy imports, exit codes."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from mixnmatch.cli.app import COMMANDS, LazyGroup, cli

AVAILABLE = list(COMMANDS)


def python(code: str, **settings) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **settings)


def test_help_imports_nothing_numerical():
    code = (
        "import sys; from mixnmatch.cli import main\n"
        "sys.argv = ['mixnmatch', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'scipy', 'sklearn'} & set(sys.modules)\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "Commands:" in done.stdout


@pytest.mark.parametrize("name", AVAILABLE)
def test_help_of_commands_has_examples_and_imports_nothing_numerical(name):
    code = (
        "import sys; from mixnmatch.cli import main\n"
        f"sys.argv = ['mixnmatch', '{name}', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'scipy', 'sklearn'} & set(sys.modules)\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert f"Examples:\n  mixnmatch {name}" in done.stdout
    assert "--json" in done.stdout
    assert "--debug" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 88


def test_help_lists_commands_and_completion(run):
    result = run("--help")
    assert result.exit_code == 0
    for name in AVAILABLE:
        assert f"  {name} " in result.stdout
    assert "_MIXNMATCH_COMPLETE=bash_source mixnmatch" in result.stdout
    assert run("-h").stdout == result.stdout


def test_version(run):
    import mixnmatch

    assert run("--version").stdout == f"mixnmatch {mixnmatch.__version__}\n"


def test_misspelt_command(run):
    result = run("fitt", "x.npz")
    assert result.exit_code == 2
    assert "No such command 'fitt'. Did you mean 'fit'?" in result.stderr
    assert run("zzz").exit_code == 2
    assert run("fit").exit_code == 2
    assert run("fit", "x.npz", "--method", "etz", "-o", "c.json").exit_code == 2
    assert run("evaluate", "x.npz", "--norm", "7").exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    runner = CliRunner(env={"_MIXNMATCH_COMPLETE": f"{shell}_source"})
    result = runner.invoke(cli, [], prog_name="mixnmatch", complete_var="_MIXNMATCH_COMPLETE")
    assert result.exit_code == 0
    assert f"_MIXNMATCH_COMPLETE={shell}_complete" in result.output


def complete(words: str, position: int) -> list[str]:
    env = {"_MIXNMATCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    result = CliRunner(env=env).invoke(cli, [], prog_name="mixnmatch", complete_var="_MIXNMATCH_COMPLETE")
    return [line.partition(",")[2] for line in result.output.splitlines()]


def test_completion():
    assert complete("mixnmatch ", 1) == AVAILABLE
    assert complete("mixnmatch ev", 1) == ["evaluate"]
    assert "--method" in complete("mixnmatch fit --me", 2)
    assert complete("mixnmatch fit --method irova", 3) == ["irova", "irova-ts", "irova-ets"]
    assert complete("mixnmatch demo --methods ts,irova-t", 3) == ["ts,irova-ts"]


def test_entry_point_completes_in_a_real_process(folder):
    env = {"_MIXNMATCH_COMPLETE": "bash_complete", "COMP_WORDS": "mixnmatch app", "COMP_CWORD": "1", "PATH": "/bin"}
    done = python("import sys; sys.argv = ['mixnmatch']; from mixnmatch.cli import main; main()", env=env)
    assert done.stdout == "plain,apply\n"


def test_group_is_the_lazy_one():
    assert isinstance(cli, LazyGroup)


def test_static_choices_are_those_of_the_library():
    from mixnmatch.cli.evaluate import NOTIONS, command
    from mixnmatch.evaluation import estimators, notion

    assert set(NOTIONS) == set(notion.NOTIONS)
    listed = next(option.help for option in command.params if option.name == "estimator")
    assert all(name in listed for name in estimators.ESTIMATORS)
