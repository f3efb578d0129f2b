"""What weights say: metrics, links, labels, records of a run.

Here belongs a number about attention that more than one feature needs. It is measured from blocks
of query rows as they go by, so that no long text needs all of its weights at once.
"""
