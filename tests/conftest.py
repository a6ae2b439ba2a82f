import pytest


@pytest.fixture(scope="session")
def warm():
    """torch and the exporter, loaded once in this process; case processes are forked from it."""
    from autofix.testing import warm_up

    warm_up()


@pytest.fixture
def model_file(tmp_path):
    """Writes a model file: model_file(text, name) -> its path as text."""

    def write(text, name="model.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write
