"""Compile the sources that a list names; a program for the Python that will read the bytecode, 3.8 or newer.

    python bytecode.py LIST FOLDER TARGET

LIST has one path below FOLDER on each line. The bytecode gets the same path below TARGET, which may be FOLDER. In the
image FOLDER is the root, so the bytecode has no path of this host. One process compiles one list, in its order: objects
that the bytecode of several files shares depend on nothing else.
"""

import importlib.util
import py_compile
import sys
from pathlib import Path


def main(names: Path, folder: Path, target: Path) -> None:
    """Write the bytecode of each file. Some packages have tests in newer syntax: these are not compiled."""
    for name in names.read_text(encoding="utf-8").splitlines():
        try:
            py_compile.compile(
                str(folder / name),
                cfile=str(target / importlib.util.cache_from_source(name)),
                dfile=f"/{name}",
                doraise=True,
                # The image never changes, so Python need not compare the source.
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except (py_compile.PyCompileError, SyntaxError, UnicodeDecodeError) as error:
            sys.stdout.write(f"{name}: left as a source: {type(error).__name__}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
