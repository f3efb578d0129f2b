"""What the commands answer, a folder for each.

`command.py` declares options and nothing else, `compute.py` has the public function that the
command calls, `document.py` declares the result, `screen.py` draws it, `figure.py` and `page.py`
tell what is drawn and where its page begins. A feature imports the engine; of another feature what
the house tests list, with a reason.
"""
