"""The report of an estimate: one HTML page, with drawings in SVG."""
