"""What weights say: metrics, links, labels and words, shared by heads, scan, the explorer and the page."""
