"""Charts (SVG) with their sentence and their figures, and report pages (HTML): no script, no font, no request."""
