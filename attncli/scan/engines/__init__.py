"""Who computes shards: worker processes on this machine, one part of several, or a Ray cluster."""
