"""Write the software bill of materials of a release: its dependencies, with versions and hashes, as CycloneDX JSON.

    python tools/sbom.py dist/retoma.cdx.json

It is made from `requirements/run.txt`, which a container image is also built from, and is the same for the same file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


def main() -> int:
    (output,) = sys.argv[1:]
    program = Path(sys.executable).parent / "cyclonedx-py"
    options = ["--output-reproducible", "--validate", "--output-format=JSON", f"--output-file={output}"]
    files = [f"--pyproject={PROJECT / 'pyproject.toml'}", str(PROJECT / "requirements" / "run.txt")]
    return subprocess.run(  # noqa: S603  (the developer's own arguments)
        [program, "requirements", *options, *files],
        env={"PYTHONWARNINGS": "ignore"},  # a list of requirements does not say which of them needs which
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
