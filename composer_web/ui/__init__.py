"""Pages: permissions and rendering of views, tables, filters, facets, saved views, form inputs, and static files."""
