"""A scripted expert behind an OpenAI-compatible endpoint, right in a share of its attempts that the study chooses.

The product plays it like any endpoint and records its rollouts, which then become a dataset. It knows the tasks' bundles,
which the study reads through the API; the product tells it nothing that another endpoint would not be told. `procedural`
plays the shipped expert of the procedural family, `repair` changes the lines of a bug in a package, and `server` answers.
"""
