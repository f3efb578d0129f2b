"""Figures for papers and talks: one drawing of what a document shows, as SVG, PNG or PDF."""
