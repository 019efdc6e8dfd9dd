"""Several engines, in one or more clusters, behind the one inference contract."""
