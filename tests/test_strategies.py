"""Every strategy's own examples, each a check of its own."""

import pytest

from autofix.testing import CheckFailed, checks_of, registry_for, run_check, warm_up

REGISTRY = registry_for()
CHECKS = [check for strategy in REGISTRY.values() for check in checks_of(strategy)]


@pytest.fixture(scope="module")
def warm():
    warm_up()


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_example(check, warm):
    try:
        run_check(check, REGISTRY)
    except CheckFailed as error:
        pytest.fail(str(error), pytrace=False)
