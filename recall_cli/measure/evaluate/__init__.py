"""`recall eval`: hit rate against false hits of each policy, on streams with known answers."""
