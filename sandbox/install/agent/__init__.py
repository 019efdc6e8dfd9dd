"""A language model that proposes the steps of an installation where the recipes fail."""
