"""The demo as somebody starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent / "demo.py"


def test_ctrl_c_while_the_demo_still_imports_ends_it_without_a_word(tmp_path: Path) -> None:
    # Stands in for the first import that takes long.
    (tmp_path / "anyio.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, str(DEMO)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "importing\n"
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=120)
    assert (demo.returncode, errors) == (130, "")
