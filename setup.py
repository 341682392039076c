"""Builds the records, which are outside of the package, into it; pyproject.toml has the rest."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RECORDS = sorted(map(str, Path("records").rglob("*.json*")))


class BuildWithRecords(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # which reads them where they are
            return
        for name in RECORDS:
            target = Path(self.build_lib, "kernelwright", "data", name)
            self.mkpath(str(target.parent))
            self.copy_file(name, str(target))

    def get_source_files(self):
        """What an sdist contains."""
        return [*super().get_source_files(), *RECORDS]


setup(cmdclass={"build_py": BuildWithRecords})
