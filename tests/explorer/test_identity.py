"""The version of the model: the same in every process, whatever was compiled meanwhile."""

from pathlib import Path

import models
from explorer.identity import model_version


def test_compiled_code_that_appears_does_not_change_the_version_of_the_model():
    before = model_version()
    compiled = Path(models.__file__).parent / "__pycache__" / "a_kernel.nbc"
    compiled.parent.mkdir(exist_ok=True)
    compiled.write_bytes(b"machine code")
    try:
        assert model_version.__wrapped__() == before
    finally:
        compiled.unlink()
