"""Generates the typed client of the API from the API's own description: `make client`.

`oc/models/` holds the answers and is made by datamodel-code-generator; `oc/api/` holds one method for each operation and
is made here, since no generator of whole clients knows our pages, forms and files. What those methods stand on is
written by hand in `oc/transport.py`. Tests compare both folders with the description, so that neither can change alone.
"""
