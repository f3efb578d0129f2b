"""Effects: what changes when a head, or a link, is taken away. It drives models/run with interventions."""
