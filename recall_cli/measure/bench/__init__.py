"""`recall bench`: hit rate, false hits and lookup times on generated prompts."""
