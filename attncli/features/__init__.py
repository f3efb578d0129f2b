"""The features, one folder each: command.py, compute.py (the public function behind it), document.py, screen.py."""
