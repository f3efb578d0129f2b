"""What weights say: metrics, links, labels, records of a run.

Here belongs a number about attention that more than one feature needs. It is measured from blocks
of query rows as they go by, so that no long text needs all of its weights at once.

To add a metric, declare it in `metric.py`, import it in `attncli/metrics.py`, compute it by loops in
`tests/oracles_metrics.py`, and run `python tests/catalogues.py`. Tests name what is left out.
"""
