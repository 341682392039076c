"""A file that cannot be imported."""

import kernelwright_has_no_such_module  # noqa: F401
