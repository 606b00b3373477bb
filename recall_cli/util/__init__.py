"""Small tools that know nothing of caches: a subprocess, an endpoint's URL, a histogram."""
