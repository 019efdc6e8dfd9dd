#!/bin/bash
# Starts the services that the tests of this checkout talk to, where they do not run yet; `start stop` ends them.
here=$(cd "$(dirname "$0")" && pwd)
for each in "$here"/*.service; do
  [ -f "$each" ] || continue
  . "$each"
  if [ "$1" = stop ]; then stop; elif ! running; then start; fi || exit 1
done
