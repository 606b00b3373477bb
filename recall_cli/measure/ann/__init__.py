"""`recall ann-bench`: speed and recall of the indexes."""
