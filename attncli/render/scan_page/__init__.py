"""One offline HTML page of a scan: every head by metric with its interval, and its strongest examples, shaded."""
