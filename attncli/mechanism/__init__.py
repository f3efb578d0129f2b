"""What attention is: pure computation on arrays. No files, no model families."""
