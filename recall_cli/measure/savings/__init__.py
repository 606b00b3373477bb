"""`recall savings`: what a cache would have saved on a log."""
