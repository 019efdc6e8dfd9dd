"""A language model that proposes the steps of an installation where the recipes fail."""

from sandbox.install.agent.tier import install_by_agent

__all__ = ["install_by_agent"]
