"""The root folder is the package `kvconform`; its conftest.py is for the project's own tests and stays out of the wheel."""

from setuptools import setup
from setuptools.command.build_py import build_py


class WithoutConftest(build_py):
    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [found for found in modules if found[1] not in ("conftest", "setup")]


setup(cmdclass={"build_py": WithoutConftest})
