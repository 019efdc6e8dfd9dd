"""Developer tools: installing, the embedded stack, measurements. No part of the product imports this package."""
