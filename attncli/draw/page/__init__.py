"""One offline HTML page of a run: its heads, their weights made again in the browser, its words."""
