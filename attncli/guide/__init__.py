"""What to read: pages in Markdown, by language. They speak of numbers that tests hold."""
