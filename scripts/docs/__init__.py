"""Builds the documentation site (`make docs`): hand-written pages in docs/, reference pages made from the schemas.

Zensical renders the pages. It is the successor of Material for MkDocs by the same authors, reads the same mkdocs.yml, and
fails on broken links and anchors; MkDocs 1 and its Material theme are no longer maintained. `build` makes the site in
build/help, which the product serves under /help/; the modules named after a page make that page.
"""
