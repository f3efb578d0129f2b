"""What the commands answer, a folder for each.

`command.py` declares options and nothing else, `compute.py` has the public function that the
command calls, `document.py` declares the result, `screen.py` draws it, `figure.py` and `page.py`
tell what is drawn and where its page begins. A feature imports the engine; of another feature what
the house tests list, with a reason.

To add a command, say `attn cost`:

1. `features/cost/` with the files above; `documents/__init__.py` says what each part of a document
   is called. `features/pairs/` and `features/cost/` are small ones to begin from.
2. `cli/app.py`: its sentence in `COMMANDS`, and its heading in `GROUPS`.
3. `attncli/__init__.py`: its function, and a first call of it in `tests/test_public_names.py`; a row
   in the README's table.
4. `python tests/catalogues.py`, `tests/options_table.py` and `tests/golden_screens.py` write what is
   stored of it: the sentences to translate, its options, its screens.

To add an option, declare it in `command.py`, then do the fourth step. Tests name what is left out.
"""
