"""Changed copies of the engine's source."""

import shutil

import pytest

from tests.support.own_stack import SOURCE, own


@pytest.fixture
def changed(tmp_path):
    """A copy of the engine's source with one passage replaced."""

    def make(file, old, new):
        root = tmp_path / "tree"
        shutil.copytree(SOURCE, root / "draftproof", ignore=shutil.ignore_patterns("__pycache__", "data"))
        path = root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return own(root)

    return make
