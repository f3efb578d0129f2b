"""How it is walked through: the full-screen application, and what it asks of a run.

`state` is what is looked at; `held` what is known of the run; panes draw the two; `app` owns keys and terminal.
"""
