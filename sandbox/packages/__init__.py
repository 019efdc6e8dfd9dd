"""Environments of pinned packages: a source distribution of the lock, pytest beside it, and its tests measured."""

from sandbox.packages.build import BuiltPackage, build_archive, build_package_environments, build_packages, with_backend

__all__ = ["BuiltPackage", "build_archive", "build_package_environments", "build_packages", "with_backend"]
