"""What every test shares: checked types, reproducible examples, and one loaded model."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Shapes and types in signatures are checked while the tests run.  The compiled kernels have no annotations, and
# numba compiles functions, not the wrappers that the hook would make of them.
_folder = importlib.util.find_spec("dobrushin").submodule_search_locations
install_import_hook(
    [f"dobrushin.{module.name}" for module in pkgutil.iter_modules(_folder) if not module.name.startswith("_")],
    "beartype.beartype",
)

# The same examples on every machine and in every run; compilation in the first example must not count as slowness.
settings.register_profile(
    "dobrushin", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("search", settings.get_profile("dobrushin"), derandomize=False, max_examples=3000)
settings.load_profile(os.environ.get("DOBRUSHIN_HYPOTHESIS", "dobrushin"))


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2 with its real weights, from the installed package."""
    from dobrushin import models

    return models.load("minilm")


@pytest.fixture(scope="session")
def few(minilm):
    """Six sequences of the default text, 64 tokens each."""
    from dobrushin import inputs

    return inputs.sequences(minilm.tokenizer, inputs.default_text(), 6, 64)


@pytest.fixture
def wikitext() -> Path:
    """The test text of WikiText-2, which the project may not redistribute."""
    folder = os.environ.get("DOBRUSHIN_DATA")
    if not folder:
        pytest.skip("DOBRUSHIN_DATA is not set: let it name a folder that holds text/wikitext2_test.txt (WikiText-2, raw)")
    path = Path(folder) / "text" / "wikitext2_test.txt"
    if not path.exists():
        pytest.skip(f"{path} is not there: put the raw test text of WikiText-2 at that place")
    return path
