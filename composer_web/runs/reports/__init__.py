"""Reports: pages of panels and text about runs. `blocks` is the content as it is stored, `services` reads and writes
reports, `text` renders Markdown, `drafts` holds a report while it is edited; then the pages and the API."""
