"""Annotations: verdicts, tags, comments, requests for review and assignees that people set on a trajectory's page.

`services` writes them and applies the training rules `annotations:…` of runs, `selectors` reads them for pages, the API
and the filter `annotation` of rollouts, `exported` is the table of exports.
"""
