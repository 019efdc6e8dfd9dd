"""Trajectories of the third round, by language, over the repositories of `third_bases`."""
