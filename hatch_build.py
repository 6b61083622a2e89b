"""Compile the kernels when the package is built, where there is a C compiler; without them everything works, slower.

``python hatch_build.py`` compiles them in place, in a checkout. The environment variable MIXNMATCH_COMPILE decides what
happens without a compiler: "auto" (the default) goes on without the kernels, "require" fails, "no" does not even try.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
KERNELS = ROOT / "src" / "mixnmatch" / "_engine" / "kernels"
# Loops over numbers may be run on vectors: no code reads errno or the flags of floating-point exceptions.
UNIX_FLAGS = ["-O3", "-std=c11", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-fvisibility=hidden", "-g0"]
# Products that are added to something are rounded once, not twice, where the processor can, which makes exponentials
# faster. The widest vectors pay, since kernels do little else than exponentials.
UNIX_FLAGS += ["-ffp-contract=fast"]
if platform.machine().lower() in ("x86_64", "amd64"):
    UNIX_FLAGS += ["-mprefer-vector-width=512"]


def compile_kernels() -> Path:
    """Compile the kernels in place and return the file; raises whatever the compiler's driver raises."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    if sys.maxsize < 2**32:
        msg = "the kernels are written for 64-bit systems"
        raise OSError(msg)
    windows = os.name == "nt"
    extension = Extension(
        "_compiled",
        [str(KERNELS / "c" / "module.c")],
        depends=[str(path) for path in (KERNELS / "c").glob("*.h")],
        extra_compile_args=["/O2"] if windows else UNIX_FLAGS,
        libraries=[] if windows else ["m"],
        py_limited_api=True,
    )
    command = build_ext(Distribution({"ext_modules": [extension]}))
    command.build_lib = str(KERNELS)
    command.build_temp = str(ROOT / "build" / "kernels")
    command.force = True
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath("_compiled"))


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, where nothing but the compiler is needed
    BuildHookInterface = object  # type: ignore[assignment,misc]


class CompiledKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled kernels to a wheel, or to a checkout that is installed as editable."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        asked = os.environ.get("MIXNMATCH_COMPILE", "auto")
        if self.target_name != "wheel" or asked == "no":
            return
        try:
            made = compile_kernels()
        except Exception as error:  # no compiler, no headers, or one that we do not know
            if asked == "require":
                raise
            self.app.display_warning(f"without compiled kernels, which make large tables faster: {error}")
            return
        build_data["artifacts"].append(str(made.relative_to(ROOT)))
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{system}"


if __name__ == "__main__":
    print(compile_kernels())
